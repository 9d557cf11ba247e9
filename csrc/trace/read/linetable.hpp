// Maps a bytecode offset to a line: decodes co_linetable without the CPython that wrote it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace oddrank::trace {

// One code object's table, decoded once for many lookups.
//
// The file may be hostile. A table that no known CPython would write (cut short, a line
// outside 0..2^31-1) gives no lines at all. Decoding takes time and memory linear in the table's
// size (most tables have 20-150 bytes, but 3.10 needs 6 MB for a dict that is written on 20,000
// lines).
class LineTable {
 public:
  // `python_version_hex` is sys.hexversion, `linetable` co_linetable (in 3.11+ it holds columns
  // too), `first_line` co_firstlineno.
  LineTable(std::uint32_t python_version_hex, std::span<const std::uint8_t> linetable,
            std::uint32_t first_line);

  // Returns the line of the instruction at `offset`; empty if the compiler gave it no line or it is
  // beyond the end. Line 0 is valid: 3.11+ gives it to code before a module's first line. Offsets
  // are in bytes, also on 3.10, where f_lasti counts two-byte instructions.
  std::optional<std::uint32_t> line_at(std::uint32_t offset) const noexcept;

 private:
  friend class LineTableDecoder;
  struct Range {
    std::uint32_t start;  // ends at the next range's start
    std::uint32_t line;   // or kNoLine
  };
  std::vector<Range> ranges_;  // sorted; the last one has no line and starts at the code's end
};

}  // namespace oddrank::trace
