// Decodes the two formats of co_linetable: 3.10, and 3.11 and later.
#include "trace/read/linetable.hpp"

#include <algorithm>
#include <limits>

#include "trace/format/format.hpp"

namespace oddrank::trace {

namespace {
constexpr std::uint32_t kNoLine = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kLastLine = std::numeric_limits<std::int32_t>::max();  // a C int in CPython
constexpr std::uint32_t kUnit = 2;  // bytes of an instruction; 3.11+ counts in these
}  // namespace

// Decodes a table from start to end; each step consumes at least one byte.
class LineTableDecoder {
 public:
  LineTableDecoder(std::span<const std::uint8_t> bytes, std::uint32_t first_line)
      : rest_(bytes), line_(first_line) {}

  // Pairs of bytes: a range's length (unsigned) and its line minus the last range's line (signed;
  // -128: no line). Large numbers take several pairs.
  bool decode_310() {
    constexpr std::int8_t kNone = -128;
    while (!rest_.empty()) {
      if (rest_.size() < 2) return false;
      const std::uint32_t length = rest_[0];
      const auto delta = static_cast<std::int8_t>(rest_[1]);
      rest_ = rest_.subspan(2);
      if (delta != kNone) line_ += delta;
      if (!add(length, delta != kNone)) return false;
    }
    return true;
  }

  // Entries: a byte 1kkkklll (kind, length - 1), then bytes below 0x80. Skips columns.
  bool decode_311() {
    while (!rest_.empty()) {
      const std::uint8_t head = rest_[0];
      rest_ = rest_.subspan(1);
      const unsigned kind = head >> 3 & 0xf;
      const bool whole = (head & 0x80) != 0 && move_line(kind);
      if (!whole || !add(((head & 7U) + 1) * kUnit, kind != kNoLocation)) return false;
    }
    return true;
  }

  // Returns the ranges of a whole table.
  std::vector<LineTable::Range> take() {
    open_range(kNoLine);
    return std::move(ranges_);
  }

 private:
  // Kinds of 3.11+. Smaller kinds mean the same line and encode part of the column.
  static constexpr unsigned kOneLine0 = 10, kOneLine2 = 12, kNoColumns = 13, kLong = 14,
                            kNoLocation = 15;

  // Reads the rest of an entry of this kind.
  bool move_line(unsigned kind) {
    std::uint32_t unused = 0;
    if (kind == kNoLocation) return true;
    if (kind < kOneLine0) return skip(1);
    if (kind <= kOneLine2) {
      line_ += kind - kOneLine0;
      return skip(2);
    }
    std::uint32_t delta = 0;
    if (!varint(delta)) return false;
    line_ += (delta & 1) != 0 ? -std::int64_t{delta >> 1} : std::int64_t{delta >> 1};
    return kind == kNoColumns || (varint(unused) && varint(unused) && varint(unused));
  }

  // Skips columns.
  bool skip(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (i == rest_.size() || (rest_[i] & 0x80) != 0) return false;
    }
    rest_ = rest_.subspan(bytes);
    return true;
  }

  // Six bits a byte, lowest first; 0x40: more follow.
  bool varint(std::uint32_t& value) {
    std::uint64_t wide = 0;
    for (unsigned shift = 0; shift <= 30; shift += 6) {
      if (rest_.empty() || (rest_[0] & 0x80) != 0) return false;
      const std::uint8_t byte = rest_[0];
      rest_ = rest_.subspan(1);
      wide |= std::uint64_t{byte & 0x3fU} << shift;
      if ((byte & 0x40) == 0) {
        value = static_cast<std::uint32_t>(wide);
        return wide == value;
      }
    }
    return false;
  }

  // Assigns the next `length` bytes of code to line_, or to no line.
  bool add(std::uint32_t length, bool has_line) {
    // Check at each step, so that the sum of differences can't overflow 64 bits.
    if (line_ < 0 || line_ > kLastLine) return false;
    if (length == 0) return true;
    if (length > std::numeric_limits<std::uint32_t>::max() - end_) return false;
    const std::uint32_t line = has_line ? static_cast<std::uint32_t>(line_) : kNoLine;
    if (ranges_.empty() || ranges_.back().line != line) open_range(line);
    end_ += length;
    return true;
  }

  void open_range(std::uint32_t line) { ranges_.push_back({end_, line}); }

  std::span<const std::uint8_t> rest_;
  std::int64_t line_;
  std::uint32_t end_ = 0;  // end of the code covered so far
  std::vector<LineTable::Range> ranges_;
};

LineTable::LineTable(std::uint32_t python_version_hex, std::span<const std::uint8_t> linetable,
                     std::uint32_t first_line) {
  const std::uint32_t version = python_version_hex >> 16;
  LineTableDecoder decoder(linetable, first_line);
  if (version < kOldestPython || version > kNewestPython) return;
  const bool whole = version == 0x030a ? decoder.decode_310() : decoder.decode_311();
  if (whole) ranges_ = decoder.take();
}

std::optional<std::uint32_t> LineTable::line_at(std::uint32_t offset) const noexcept {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), offset,
                       [](std::uint32_t at, const Range& range) { return at < range.start; });
  if (after == ranges_.begin()) return std::nullopt;
  const std::uint32_t line = std::prev(after)->line;
  return line == kNoLine ? std::nullopt : std::optional(line);
}

}  // namespace oddrank::trace
