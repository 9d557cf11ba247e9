// The way of a line: chunk -> word of the table -> line around it -> its piece -> fields -> row.
// Lines without such a word are never looked at by themselves: their ends are only counted.
#include "metrics/reader.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "logs/characters.hpp"
#include "logs/docker.hpp"
#include "logs/escapes.hpp"
#include "logs/prefixes.hpp"
#include "logs/timestamps.hpp"
#include "metrics/formats.hpp"
#include "metrics/numbers.hpp"

namespace oddrank::metrics {
namespace {

constexpr std::size_t kLongest = 1u << 20;  // of a line; a longer one is read in pieces
constexpr std::size_t kBehind = 4096;       // bytes before a line in which its progress bar may be
constexpr std::size_t kMostText = 16'384;   // bytes of a line's numbers

// The anchors of all formats, each once, and behind them the signs.
struct Words {
  std::vector<std::string_view> anchors;
  logs::Needles needles;

  static std::vector<std::string_view> unique_anchors() {
    std::vector<std::string_view> made;
    for (const Format& format : formats()) {
      if (std::find(made.begin(), made.end(), format.anchor) == made.end()) {
        made.push_back(format.anchor);
      }
    }
    return made;
  }
  static std::vector<logs::Needle> all(const std::vector<std::string_view>& anchors) {
    std::vector<logs::Needle> made;
    made.reserve(anchors.size() + signs().size());
    for (const std::string_view anchor : anchors) made.push_back({std::string(anchor)});
    for (const Sign& sign : signs()) made.push_back({std::string(sign.word)});
    return made;
  }
  Words() : anchors(unique_anchors()), needles(all(anchors)) {}
};

const Words& words() {
  static const Words made;
  return made;
}

// Returns the number of newlines, eight bytes at a time.
std::uint64_t newlines(std::string_view text) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  constexpr std::uint64_t kLow = 0x7f * kOnes;
  std::uint64_t count = 0;
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + at, 8);
    eight ^= '\n' * kOnes;
    // A byte's highest bit is set where the byte is 0. The product adds up the eight bits.
    const std::uint64_t found = ~(((eight & kLow) + kLow) | eight | kLow);
    count += ((found >> 7) * kOnes) >> 56;
  }
  return count + static_cast<std::uint64_t>(
                     std::count(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), '\n'));
}

std::uint64_t writer_of(const logs::Prefix& who) {
  if (who.empty()) return 0;
  std::uint64_t hash =
      std::hash<std::string_view>()(who.host) * 31 + std::hash<std::string_view>()(who.pod);
  for (const std::int64_t part : {who.rank, who.local_rank, who.task, who.host_number, who.pid}) {
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return hash == 0 ? 1 : hash;
}

// As text.rfind(word, at), which compares the word at each byte and takes a fifth of all time.
std::size_t last_before(std::string_view text, std::string_view word, std::size_t at) {
  for (; (at = text.rfind(word[0], at)) != kNowhere; --at) {
    if (text.substr(at).starts_with(word)) return at;
    if (at == 0) return kNowhere;
  }
  return kNowhere;
}

// Takes the number that ends at `end`, backwards. Returns where it begins, npos if there is none.
std::size_t number_before(std::string_view text, std::size_t end, double& value) {
  std::size_t at = end;
  while (at > 0 && end - at < 15 && logs::is_digit(text[at - 1])) --at;
  std::string_view digits = text.substr(at, end - at);
  return take_number(digits, value) ? at : kNowhere;
}

// Seconds of 01:30, 1:02:03.
double clock_seconds(std::string_view text) {
  double seconds = 0;
  for (double part = 0; take_number(text, part) && part >= 0 && part < 1e6;) {
    seconds = seconds * 60 + part;
    if (!text.starts_with(':')) return seconds;
    text.remove_prefix(1);
  }
  return kUnknown;
}

// Finds the last progress bar of tqdm, " 10/100 [00:10<01:30,  1.00it/s]", and takes its numbers.
void take_bar(std::string_view text, Row& row) {
  for (std::size_t at = text.rfind(" ["); at != kNowhere && at > 0; at = text.rfind(" [", at - 1)) {
    double total = 0;
    const std::size_t slash = number_before(text, at, total);
    if (slash == kNowhere || slash == 0 || text[slash - 1] != '/') continue;
    double done = 0;
    if (number_before(text, slash - 1, done) == kNowhere) continue;
    const std::string_view inside = text.substr(at + 2, 64);
    if (inside.substr(0, inside.find(']')).find('<') == kNowhere) continue;
    row[kIteration] = done;
    row[kTotal] = total;
    row[kTime] = clock_seconds(inside);
    return;
  }
}

}  // namespace

Reader::Reader(std::uint16_t file, std::int64_t reference_ns)
    : file_(file), reference_ns_(reference_ns) {}

void Reader::feed(std::string_view chunk, std::vector<Row>& rows) {
  const std::size_t fresh = held_.size();
  held_.append(chunk);
  std::size_t end = held_.rfind('\n');
  // A line that does not end is read as far as it goes once it is long.
  if (end == kNowhere || end < std::max(open_, fresh)) {
    if (held_.size() - open_ < kLongest) return;
    end = held_.size() - 1;
  }
  const std::string_view text(held_);
  scan(text, open_, end + 1, rows);
  const std::size_t keep = end + 1 - std::min(end + 1, kBehind);
  open_ = end + 1 - keep;
  held_.erase(0, keep);
}

void Reader::finish(std::vector<Row>& rows) {
  if (held_.size() > open_) scan(held_, open_, held_.size(), rows);
  if (held_.size() > open_ && !held_.ends_with('\n')) ++lines_;
  held_.clear();
  open_ = 0;
}

void Reader::begin_file(std::vector<Row>& rows) {
  finish(rows);
  earlier_ += std::exchange(lines_, 0);
}

void Reader::count_lines(std::string_view text) { lines_ += newlines(text); }

// Reads the lines of text[from, end); what stands before is known.
void Reader::scan(std::string_view text, std::size_t from, std::size_t end,
                  std::vector<Row>& rows) {
  text = text.substr(0, end);
  std::size_t counted = from;
  while (true) {
    const logs::Needles::Hit hit = words().needles.next(text, from);
    if (hit.at == kNowhere) break;
    count_lines(text.substr(counted, hit.at - counted));
    counted = hit.at;
    from = take_line(text, hit.at, hit.needle, rows);
  }
  count_lines(text.substr(counted));
}

// Takes the numbers around a word. Returns where the search goes on.
std::size_t Reader::take_line(std::string_view text, std::size_t at, std::size_t needle,
                              std::vector<Row>& rows) {
  const std::size_t behind = at + words().needles[needle].text.size();
  if (needle >= words().anchors.size()) {
    const Row::Kind kind = signs()[needle - words().anchors.size()].kind;
    // Of the many lines of a checkpoint one is enough.
    const bool again = !rows.empty() && rows.back().kind == kind && kind != Row::Kind::step;
    if (!again) {
      Row& row = rows.emplace_back();
      row.kind = kind;
      row.file = file_;
      row.line = lines_ + 1;
    }
    return behind;
  }
  const std::size_t newline = at == 0 ? kNowhere : text.rfind('\n', at - 1);
  const std::size_t first = newline == kNowhere ? 0 : newline + 1;
  const std::size_t last = std::min(text.find('\n', at), text.size());
  const std::size_t begin = std::max(first, at - std::min(at, kMostText));
  std::string_view line = text.substr(begin, std::min(last, at + kMostText) - begin);
  const std::size_t lead = std::min(begin, kBehind);
  const std::string_view before = text.substr(begin - lead, lead);
  const bool packed = line.starts_with("{\"log\":") && logs::unpack_docker(line, unpacked_);
  if (packed) line = unpacked_;
  if (line.find('\x1b') != kNowhere) {
    logs::without_escapes(line, plain_);
    line = plain_;
  }
  // Several processes may have written one line, and a progress bar may stand in front.
  bool taken = false;
  std::size_t rest = behind;
  for (std::size_t from = 0; from < line.size();) {
    const std::size_t torn = std::min(logs::next_torn(line, from + 1), line.size());
    taken |= take_step(before, line.substr(from, torn - from), needle, rows);
    from = torn;
  }
  if (taken) rest = last;
  return std::max(rest, behind);
}

// Adds the row of a line, or of the piece of one that a process wrote.
bool Reader::take_step(std::string_view before, std::string_view line, std::size_t needle,
                       std::vector<Row>& rows) {
  const std::string_view anchor = words().anchors[needle];
  const std::size_t at = line.find(anchor);
  if (at == kNowhere) return false;
  for (const Format& format : formats()) {
    if (format.anchor != anchor) continue;
    const std::size_t begin = last_before(line, format.begin, at);
    if (begin == kNowhere) continue;
    Row row;
    std::string_view own = line.substr(begin);
    if (const std::size_t end = own.find('\r'); end != kNowhere) own = own.substr(0, end);
    if (!read_fields(format, own, row)) continue;
    row.file = file_;
    row.line = lines_ + 1;
    const std::string_view head = line.substr(0, begin);
    const logs::Prefix who = logs::find_prefix_behind_bar(head);
    row.writer = writer_of(who);
    if (who.rank >= 0 && who.rank < 10'000'000) row.rank = static_cast<std::int32_t>(who.rank);
    if (const auto time = logs::find_time(head, reference_ns_)) {
      row[kTime] = static_cast<double>(time->ns) * 1e-9;
    }
    if (format.split == Split::dict && !row.has(kIteration)) {
      take_bar(head, row);
      if (!row.has(kIteration)) take_bar(before, row);
    }
    rows.push_back(row);
    return true;
  }
  return false;
}

}  // namespace oddrank::metrics
