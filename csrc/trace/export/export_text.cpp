// Builds events from texts and numbers. Escapes and formats without locale.
#include <algorithm>
#include <charconv>

#include "trace/export/export.hpp"

namespace oddrank::trace {
namespace {

// Rows for overlapping slices. Bounds the work on a hostile file.
constexpr std::size_t kMostRows = 32;

// The ends of a row's open slices, outermost first.
class Row {
 public:
  // Adds a slice; slices come in the order of their begins. Returns false if it overlaps an open
  // one in a way that `within` does not allow.
  bool take(const Slice& slice, Within within) {
    while (!ends_.empty() && ends_.back() <= slice.begin) ends_.pop_back();
    const bool is_inside = within == Within::kSameRow && !ends_.empty();
    if (!ends_.empty() && !(is_inside && slice.end <= ends_.back())) return false;
    ends_.push_back(slice.end);
    return true;
  }

 private:
  std::vector<std::int64_t> ends_;
};

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool continues(unsigned char byte) noexcept { return (byte & 0xC0) == 0x80; }

// Returns the length of the first UTF-8 character, or 0 if it is invalid (RFC 3629: no surrogates,
// nothing longer than needed, nothing beyond U+10FFFF).
std::size_t length_of_character(std::string_view bytes) noexcept {
  const auto at = [bytes](std::size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : static_cast<unsigned char>(0);
  };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4 || !continues(at(1))) return 0;
  if (first < 0xE0) return 2;
  if (!continues(at(2))) return 0;
  const bool too_long = (first == 0xE0 && at(1) < 0xA0) || (first == 0xF0 && at(1) < 0x90);
  const bool no_character = (first == 0xED && at(1) > 0x9F) || (first == 0xF4 && at(1) > 0x8F);
  if (too_long || no_character) return 0;
  if (first < 0xF0) return 3;
  return continues(at(3)) ? 4 : 0;
}

void append_control(std::string& to, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  to += "\\u00";
  to += kDigits[byte >> 4];
  to += kDigits[byte & 15];
}

}  // namespace

std::int64_t ExportText::time(std::uint64_t tsc) noexcept {
  const auto found = clock_.realtime_ns(tsc);
  std::int64_t since = 0;
  if (found && !__builtin_sub_overflow(*found, origin_ns_, &since)) {
    last_ = std::min(since, end_);
  }
  return last_;
}

void ExportText::begin_event(char phase, std::uint64_t row, std::int64_t ns) {
  if (row != prefix_row_) {
    prefix_row_ = row;
    prefix_ = "\",\"pid\":";
    append_number(prefix_, process_id_);
    prefix_ += ",\"tid\":";
    append_number(prefix_, static_cast<std::int64_t>(row));
    prefix_ += ",\"ts\":";
  }
  text += ",\n{\"ph\":\"";
  text += phase;
  text += prefix_;
  append_microseconds(text, ns);
  ++events;
}

void ExportText::instant(std::uint64_t row, std::int64_t ns, std::string_view name) {
  begin_event('i', row, ns);
  text += ",\"s\":\"t\"";
  this->name(name);
  text += '}';
}

void ExportText::name(std::string_view bytes) {
  text += ",\"name\":\"";
  append_escaped(text, bytes, kLongestText);
  text += '"';
}

void ExportText::metadata(std::string_view what, std::uint64_t row) {
  text += ",\n{\"ph\":\"M\",\"pid\":";
  append_number(text, process_id_);
  text += ",\"tid\":";
  append_number(text, static_cast<std::int64_t>(row));
  text += ",\"name\":\"";
  text += what;
  text += "\",\"args\":{";
}

void ExportText::describe(std::string_view what, std::uint64_t row, std::string_view name) {
  metadata(what, row);
  text += what == "process_labels" ? "\"labels\":\"" : "\"name\":\"";
  append_escaped(text, name, kLongestText);
  text += "\"}}";
}

void ExportText::describe(std::string_view what, std::uint64_t row, std::int64_t number) {
  metadata(what, row);
  text += "\"sort_index\":";
  append_number(text, number);
  text += "}}";
}

std::uint64_t write_slices(ExportText& out, std::uint64_t row, std::string_view title,
                           std::int64_t order, Within within, std::vector<Slice> slices) {
  std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<Row> rows;
  for (const Slice& slice : slices) {
    auto at = std::ranges::find_if(rows, [&](Row& each) { return each.take(slice, within); });
    if (at == rows.end()) {
      if (rows.size() == kMostRows) {
        ++out.left_out;
        continue;
      }
      std::string name(title);
      if (!rows.empty()) name += " (" + std::to_string(rows.size() + 1) + ")";
      out.describe("thread_name", row + rows.size(), name);
      out.describe("thread_sort_index", row + rows.size(), order);
      at = rows.insert(rows.end(), Row{});
      at->take(slice, within);
    }
    out.begin_event('X', row + static_cast<std::uint64_t>(at - rows.begin()), slice.begin);
    out.text += ",\"dur\":";
    append_microseconds(out.text, std::max(slice.end, slice.begin) - slice.begin);
    out.name(slice.name);
    out.text += ",\"args\":{" + slice.args + "}}";
  }
  return row + rows.size();
}

void append_escaped(std::string& to, std::string_view bytes, std::size_t most) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t length = length_of_character(bytes.substr(at, 4));
    if (at + length > most || at >= most) {
      to += "...";
      return;
    }
    const auto first = static_cast<unsigned char>(bytes[at]);
    if (length == 0) {
      to += kReplacement;
    } else if (first < 0x20) {
      append_control(to, first);
    } else {
      if (first == '"' || first == '\\') to += '\\';
      to += bytes.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
}

void append_number(std::string& to, std::int64_t number) {
  char digits[24];
  const auto result = std::to_chars(digits, digits + sizeof digits, number);
  to.append(digits, result.ptr);
}

void append_microseconds(std::string& to, std::int64_t nanoseconds) {
  if (nanoseconds < 0) to += '-';
  // Unsigned: the smallest int64 has no positive counterpart.
  const auto value = nanoseconds < 0 ? 0 - static_cast<std::uint64_t>(nanoseconds)
                                     : static_cast<std::uint64_t>(nanoseconds);
  char digits[28];
  char* end = std::to_chars(digits, digits + sizeof digits, value / 1000).ptr;
  const std::uint64_t rest = value % 1000;
  *end++ = '.';
  *end++ = static_cast<char>('0' + rest / 100);
  *end++ = static_cast<char>('0' + rest / 10 % 10);
  *end++ = static_cast<char>('0' + rest % 10);
  to.append(digits, end);
}

}  // namespace oddrank::trace
