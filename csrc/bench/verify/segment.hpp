// A run of elements of one rank's buffer, and what a check says of it.
// C++17: included by .cu files.
#pragma once

#include <cstdint>
#include <string_view>

#include "bench/verify/pattern.hpp"

namespace oddrank::bench {

struct Segment {
  Dtype dtype;
  Op op;
  std::uint32_t source;  // whose data it is; a check of reduced data doesn't look at it
  std::uint32_t world;
  std::uint64_t first;  // element k of the segment is element first + k of the data
  std::uint64_t count;
  std::uint64_t turn;

  std::uint64_t bytes() const noexcept { return count * traits(dtype).size; }
};

// Throws Error where a name or a number is none that a Segment can have.
Segment make_segment(std::string_view dtype, std::string_view op, std::int64_t source,
                     std::int64_t world, std::int64_t first, std::int64_t count, std::int64_t turn);

struct Mismatch {
  std::uint64_t wrong = 0;  // elements
  std::int64_t index = -1;  // of the first one, from the segment's begin; -1: none
  double expected = 0;
  double got = 0;
};

}  // namespace oddrank::bench
