// The table of launchers' prefixes: which forms are tried on a line, and in which order.
#include "logs/prefixes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "logs/characters.hpp"
#include "logs/cursor.hpp"
#include "logs/forms.hpp"

namespace oddrank::logs {
namespace {

constexpr std::size_t kNested = 8;      // prefixes of one line
constexpr std::size_t kBarLimit = 512;  // a progress bar ends before this byte
constexpr auto kNone = std::string_view::npos;

using Parse = std::size_t (*)(std::string_view text, Prefix& who);

struct Row {
  char first;   // '0': any digit; 'a': any letter; else this very character
  char second;  // the same of the character behind a bracket; '.': any
  // What may stand behind the first run of letters and digits, a bracket before it apart: most
  // lines are told from all rows by these three characters. Empty: anything.
  std::string_view after;
  Parse parse;
};
constexpr Row kRows[] = {
    {'[', 'r', "]:", forms::torch_rank}, {'[', '0', ",]", forms::mpirun},
    {'[', 'a', "@", forms::mpirun},      {'[', 'p', "/", forms::kubectl},
    {'[', '.', "]:/|", forms::torchrun}, {'[', 'a', ":", forms::mpi_message},
    {'[', '.', ":", forms::oddrank_run}, {'[', '0', "", forms::bare_colour},
    {'(', '.', "", forms::ray},          {'0', '.', ":", forms::srun},
    {' ', '.', "", forms::srun},         {'0', '.', ": ", forms::stamp},
    {'0', '.', ":", forms::host},        {'a', '.', ": ", forms::stream},
    {'a', '.', ":", forms::host},        {'a', '.', " ", forms::syslog},
    {'a', '.', " ", forms::compose},     {'a', '.', " ", forms::mpirun_time},
};
static_assert(std::size(kRows) <= 32);

constexpr bool is_of(char c, char kind) {
  return kind == '.' || (kind == '0' ? is_digit(c) : kind == 'a' ? is_letter(c) : kind == c);
}

using RowsOfByte = std::array<std::uint32_t, 256>;

// Returns for each byte the rows that it fits, a bit a row.
constexpr RowsOfByte rows_by(auto fits) {
  RowsOfByte rows{};
  for (std::size_t byte = 0; byte < rows.size(); ++byte) {
    for (std::size_t row = 0; row < std::size(kRows); ++row) {
      if (fits(kRows[row], static_cast<char>(byte))) rows[byte] |= 1U << row;
    }
  }
  return rows;
}

constexpr RowsOfByte kByFirst = rows_by([](const Row& row, char c) { return is_of(c, row.first); });
constexpr RowsOfByte kBySecond =
    rows_by([](const Row& row, char c) { return is_of(c, row.second); });
constexpr RowsOfByte kByAfter = rows_by([](const Row& row, char c) {
  return row.after.empty() || row.after.find(c) != std::string_view::npos;
});

// Returns the length of an escape sequence at the front of a text, 0 if there is none.
std::size_t escape(std::string_view text) {
  if (text.size() < 2 || text[0] != '\x1b') return 0;
  if (text[1] != '[') return 2;
  std::size_t at = 2;
  while (at < text.size() && at < kLongestPrefix && (text[at] < '@' || text[at] > '~')) ++at;
  return std::min(at + 1, text.size());
}

std::size_t one_prefix(std::string_view text, Prefix& who) {
  const auto byte = [text](std::size_t at) -> std::size_t {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U;
  };
  auto rows = kByFirst[byte(0)];
  if (rows == 0) return 0;
  std::size_t end = text[0] == '[' ? 1 : 0;
  if (end == 1) rows &= kBySecond[byte(1)];
  while (end < text.size() && end < kLongestPrefix && is_name(text[end])) ++end;
  rows &= kByAfter[byte(end)];
  for (; rows != 0; rows &= rows - 1) {
    const Row& row = kRows[std::countr_zero(rows)];
    if (const std::size_t taken = row.parse(text, who); taken > 0) return taken;
  }
  return 0;
}

void add_prefixes(std::string_view line, Prefix& who) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (who.text == 0 && line[0] == kByteOrderMark[0] && line.starts_with(kByteOrderMark)) {
    who.text = kByteOrderMark.size();
  }
  for (std::size_t nested = 0; nested < kNested && who.text < line.size();) {
    std::size_t taken = escape(line.substr(who.text));
    if (taken == 0) {
      taken = one_prefix(line.substr(who.text), who);
      if (taken == 0) return;
      ++nested;
    }
    who.text += taken;
    if (who.stream != '\0' && who.tag == 0) who.tag = who.text;
    // One space belongs to the prefix; more of them are the text's own. Behind mpirun's tag all
    // are.
    if (nested > 0 && who.tag != who.text && line[who.text - 1] != ' ' && who.text < line.size() &&
        line[who.text] == ' ') {
      ++who.text;
    }
  }
}

}  // namespace

Prefix find_prefix(std::string_view line) {
  Prefix who;
  if (line.empty()) return who;
  // Nearly all lines of a log without prefixes end here.
  const auto first = static_cast<unsigned char>(line[0]);
  if (first != 0x1b && first != 0xef && kByFirst[first] == 0) return who;
  add_prefixes(line, who);
  return who;
}

Prefix find_prefix_behind_bar(std::string_view line) {
  Prefix who = find_prefix(line);
  const std::string_view text = line.substr(who.text, kBarLimit);
  for (const std::string_view rate : {"it/s", "s/it"}) {
    const std::size_t found = text.find(rate);
    if (found == kNone) continue;
    const std::size_t end = text.find(']', found);
    if (end == kNone || who.text + end + 1 >= line.size()) continue;
    who.text += end + 1;
    add_prefixes(line, who);
    break;
  }
  constexpr std::string_view kRepeated = "x across cluster]";
  who.repeated = line.find(kRepeated) != kNone;
  return who;
}

std::size_t next_torn(std::string_view line, std::size_t from) {
  for (; (from = line.find('[', from)) != kNone; ++from) {
    const std::string_view text = line.substr(from);
    // Nearly all brackets are no prefix's.
    if (text.size() < 8) continue;
    Prefix who;
    if (is_digit(text[1]) && forms::mpirun(text, who) > 0) return from;
    if (!is_letter(text[1])) continue;
    Cursor at(text.substr(1)), named = at;
    if ((at.take("rank") || at.take("default")) && !at.take_while(is_digit).empty() &&
        at.take("]:")) {
      return from;
    }
    named.take_while(is_name);
    if (named.take(":rank") && !named.take_while(is_digit).empty() && named.take("] ")) return from;
  }
  return kNone;
}

}  // namespace oddrank::logs
