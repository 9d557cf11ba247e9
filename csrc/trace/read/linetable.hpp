// From a bytecode offset to a line number: reads the linetable bytes that CPython's code objects
// carry, without that Python and after its death.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace oddrank::trace {

// One code object's table, decoded once for many lookups.
//
// A table comes from a file that anybody may have written. One that CPython 3.10-3.14 would not
// write (cut short, a line outside 0..2^31-1), or of another version, has no lines at all: if one
// entry is wrong, so may be the rest. Decoding takes time and memory linear in the table's size
// (most tables have 20-150 bytes, but 3.10 needs 6 MB for a dict that is written on 20,000 lines).
class LineTable {
 public:
  // `python_version_hex` is sys.hexversion, `linetable` co_linetable (in 3.11+ it holds columns
  // too), `first_line` co_firstlineno.
  LineTable(std::uint32_t python_version_hex, std::span<const std::uint8_t> linetable,
            std::uint32_t first_line);

  // The line of the instruction at `offset`; none for what the compiler made without a line and
  // beyond the end. Line 0 is a line: 3.11+ gives it to what runs before a module's first one.
  //
  // Offsets are bytes, also on 3.10, whose f_lasti counts instructions of two bytes: who records
  // it doubles it first.
  std::optional<std::uint32_t> line_at(std::uint32_t offset) const noexcept;

 private:
  friend class LineTableDecoder;
  struct Range {
    std::uint32_t start;  // up to the next range's
    std::uint32_t line;   // or kNoLine
  };
  std::vector<Range> ranges_;  // sorted; the last one has no line and starts at the code's end
};

}  // namespace oddrank::trace
