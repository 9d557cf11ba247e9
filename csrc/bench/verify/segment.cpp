// Checks the numbers that come from outside.
#include "bench/verify/segment.hpp"

#include <limits>
#include <string>

#include "base/error.hpp"

namespace oddrank::bench {
namespace {

std::uint64_t in_range(const char* name, std::int64_t value, std::int64_t least,
                       std::int64_t most) {
  if (value < least || value > most) {
    throw Error(std::string(name) + " is " + std::to_string(value) + ", not between " +
                std::to_string(least) + " and " + std::to_string(most));
  }
  return static_cast<std::uint64_t>(value);
}

}  // namespace

Segment make_segment(std::string_view dtype, std::string_view op, std::int64_t source,
                     std::int64_t world, std::int64_t first, std::int64_t count,
                     std::int64_t turn) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kMostElements = std::int64_t{1} << 58;  // bytes of them still are 64 bits
  Segment segment{};
  segment.dtype = dtype_of(dtype);
  segment.op = op_of(op);
  segment.world = static_cast<std::uint32_t>(in_range("world", world, 1, kMostRanks));
  segment.source = static_cast<std::uint32_t>(in_range("source", source, 0, world - 1));
  segment.first = in_range("first", first, 0, kMostElements);
  segment.count = in_range("count", count, 0, kMostElements);
  segment.turn = in_range("turn", turn, 0, kMost);
  return segment;
}

}  // namespace oddrank::bench
