// The values of verified collectives: the dtypes and their bits, what a rank contributes, and what
// must come out. C++17: included by .cu files.
#pragma once

#include <cstdint>
#include <string_view>

#include "os/mix.hpp"

namespace oddrank::bench {

enum class Dtype : std::uint8_t {
  kFloat32,
  kFloat16,
  kBfloat16,
  kFloat8E4m3fn,
  kFloat8E5m2,
  kFloat64,
  kInt8,
  kInt32,
  kInt64,
  kUint8,
  kUint32,
  kUint64,
};

struct DtypeTraits {
  std::string_view name;  // torch's
  unsigned size;          // bytes
  // Bits of a float's exponent and mantissa; both 0 for integers.
  int exponent_bits;
  int mantissa_bits;
  bool infinite;  // false for e4m3fn, whose largest exponent holds numbers and no infinity
  // For the pattern: sums of ones are exact in any order up to this many; and the largest number.
  double exact;
  double largest;
  std::uint32_t moved_values;  // number of values that mark moved data, a prime
  bool is_signed = true;

  bool is_float() const noexcept { return exponent_bits != 0; }
};

const DtypeTraits& traits(Dtype dtype) noexcept;

// Throws Error for an unknown name.
Dtype dtype_of(std::string_view name);

// Returns the bits of the nearest number (ties to even) in the low bytes. An integer dtype must
// hold `value`: an unsigned one no negative number.
std::uint64_t encode(Dtype dtype, double value) noexcept;

// Returns the number in the low bytes of `bits`; for an integer beyond 2^53 the nearest double.
double decode(Dtype dtype, std::uint64_t bits) noexcept;

// The pattern has this many values, its slots. Each block of so many indices holds all of them in
// order, begun at a slot of its own, so that filling and checking are copies out of a table that
// fits a core's cache, and yet nothing repeats. A prime: pieces of the sizes that programs use do
// not begin where blocks do.
inline constexpr std::uint32_t kSlots = 4093;

ODDRANK_HOST_DEVICE constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  return mix_bits(x + kMixStep);
}

// The slot of a block's first index.
ODDRANK_HOST_DEVICE constexpr std::uint32_t first_slot(std::uint64_t block) noexcept {
  return static_cast<std::uint32_t>(mix(block) % kSlots);
}

ODDRANK_HOST_DEVICE constexpr std::uint32_t slot_of(std::uint64_t index) noexcept {
  return static_cast<std::uint32_t>((index % kSlots + first_slot(index / kSlots)) % kSlots);
}

enum class Op : std::uint8_t { kSum, kMin, kMax, kAvg, kProd, kNone };

// Throws Error for an unknown op. "none": data is moved, not reduced.
Op op_of(std::string_view name);

// Tested to be exact up to 16,384 ranks; up to here nothing overflows.
inline constexpr std::uint32_t kMostRanks = 1 << 20;

// Every value is exact in the dtype, and so is every partial result, in whatever order and by
// whatever tree the ranks are combined. Both functions take the same time for any world.
//
// A slot numbers the ranks anew: x = (a * rank + s) mod world, a a prime above any
// world, so that x is a permutation; a and s are the slot's. x moves on from turn to turn, so
// that each rank comes to contribute to each slot (turn_of).
//
//   sum    ranks with x < L put in 2^e, the others 0; L * 2^e comes out. L stays where sums of ones
//          are exact: 16 (e4m3), 8 (e5m2), 256 (bf16), 2048 (fp16), 127 (int8).
//   avg    the same, with L <= 2 where n is no power of two: L * 2^e / n comes out, within 2 ulp.
//          Integers: n times as much, so that n divides it. In int8 the result can only be 1 from
//          64 ranks on, and only 0 from 128 ranks on.
//   prod   ranks with x < L put in a negative number, at most four ranks 2, the others 1.
//          Unsigned: ranks with x < L put in 2, L <= 7 in uint8 and 31 in others.
//   max    the rank with x = 0 puts in one of 5..8 times 2^e, the others 1..4 times 2^e.
//   min    the same, negative. Unsigned: one of 1..4 times 2^e, the others 5..8 times 2^e.
//   none   a value of the source, the slot and the turn; ranks next to each other always differ.
class Pattern {
 public:
  Pattern(Dtype dtype, Op op, std::uint32_t world, std::uint64_t turn) noexcept;

  // Returns the value that `rank` contributes to a slot; with op none its data.
  double contribution(std::uint32_t rank, std::uint32_t slot) const noexcept;
  // Returns the result over all ranks, the true value if avg is not exact. Not for op none.
  double result(std::uint32_t slot) const noexcept;

  // How much a right result may differ from `result`: in units of the last place, and relative.
  // Both are 0 unless op is avg, and also for an avg over a power of two n if the dtype holds 1/n.
  // relative: an implementation may multiply by 1/n in the dtype itself. e4m3 rounds 1/n coarsely
  // above 64 ranks, and to 0 from 1024 ranks on: there the check accepts 0.
  struct Tolerance {
    int ulp = 0;
    double relative = 0;
  };
  Tolerance tolerance() const noexcept;

  // Returns the first turn from 0 at which `rank` contributes to a slot. Ignores the pattern's own
  // turn.
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

// Returns the number of turns until every rank has contributed to one of the first `count`
// elements, at most `most`.
std::uint64_t turns(Dtype dtype, Op op, std::uint32_t world, std::uint64_t count,
                    std::uint64_t most) noexcept;

}  // namespace oddrank::bench
