// The values of verified collectives: what a rank puts in, and what must come out.
// C++17: included by .cu files.
#pragma once

#include <cstdint>
#include <string_view>

#include "bench/verify/dtype.hpp"

namespace oddrank::bench {

enum class Op : std::uint8_t { kSum, kMin, kMax, kAvg, kProd, kNone };

// Throws Error where there is no such op. "none": data is moved, not reduced.
Op op_of(std::string_view name);

// Tested to be exact up to 16,384 ranks; up to here nothing overflows.
inline constexpr std::uint32_t kMostRanks = 1 << 20;

// Every value is exact in the dtype, and so is every partial result, in whatever order and by
// whatever tree the ranks are combined. Both functions take the same time for any world.
//
// A slot (slots.hpp) numbers the ranks anew: x = (a * rank + s) mod world, a a prime above any
// world, so that x is a permutation; a and s are the slot's. Turn after turn x moves on, so that
// within `window_turns` turns each rank is among the contributors of each slot.
//
//   sum    ranks with x < L put in 2^e, the others 0; L * 2^e comes out. L stays where sums of ones
//          are exact: 16 (e4m3), 8 (e5m2), 256 (bf16), 2048 (fp16), 127 (int8).
//   avg    the same, with L <= 2 where n is no power of two: L * 2^e / n comes out, within 2 ulp.
//          Integers: n times as much, so that n divides it; int8 has room for no result but 1 from
//          64 ranks on, and but 0 from 128 on.
//   prod   ranks with x < L put in a negative number, at most four ranks 2, the others 1.
//   max    the rank with x = 0 puts in one of 5..8 times 2^e, the others 1..4 times 2^e.
//   min    the same, negative.
//   none   a value of the source, the slot and the turn; ranks next to each other always differ.
class Pattern {
 public:
  Pattern(Dtype dtype, Op op, std::uint32_t world, std::uint64_t turn) noexcept;

  // What `rank` puts into a slot; with op none: what is its data.
  double contribution(std::uint32_t rank, std::uint32_t slot) const noexcept;
  // What all ranks' contributions come to. Not for op none. Where avg isn't exact: the true value.
  double result(std::uint32_t slot) const noexcept;

  // By how much a right result may differ from `result`: in units of the last place, and relative.
  // Not 0 for avg alone, and not there where n is a power of two of which the dtype holds 1/n.
  // relative: an implementation may multiply by 1/n in the dtype itself; e4m3 rounds it coarsely
  // above 64 ranks, and to 0 from 1024 on, where this check therefore lets pass 0.
  struct Tolerance {
    int ulp = 0;
    double relative = 0;
  };
  Tolerance tolerance() const noexcept;

  // The turn from 0 at which `rank` surely is among the contributors of a slot; the pattern's own
  // turn does not matter.
  std::uint32_t turn_of(std::uint32_t rank, std::uint32_t slot) const noexcept;

 private:
  struct Choice;
  Choice choose(std::uint32_t slot) const noexcept;
  std::uint64_t number_of(std::uint32_t rank, std::uint32_t slot,
                          std::uint64_t turn) const noexcept;
  double moved(std::uint32_t source, std::uint32_t slot) const noexcept;

  Dtype dtype_;
  Op op_;
  std::uint32_t world_;
  std::uint64_t turn_;
  std::uint32_t fewest_, most_;  // contributors of a slot
  std::uint32_t exponents_;      // e of 2^e is below this
  double unit_ = 1;              // 2^e is in units of it
};

// How many turns it takes until every rank has contributed to one of the first `count` elements;
// `most` where it takes more, after which nothing is looked at.
std::uint64_t turns(Dtype dtype, Op op, std::uint32_t world, std::uint64_t count,
                    std::uint64_t most) noexcept;

}  // namespace oddrank::bench
