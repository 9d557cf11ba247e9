// The values of verified collectives: the dtypes and their bits, a rank's contribution, and the
// right result (pattern.cpp). Fills and checks a segment of a rank's data, by a table of its
// pattern as bits of its dtype: in the memory of the host (verify.cpp) or of a GPU (device.cu).
// C++17: included by device.cu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "os/clock.hpp"
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

// Number of values of the pattern, and of its slots: a table that fits a core's cache. Each block
// of so many elements is the table, rotated by a hash of the block's number: blocks are copies of
// it and differ. A prime: pieces of the sizes that programs use do not begin where blocks do.
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

// Every value is exact in the dtype, and so is every partial result, in any order and by any tree
// of ranks. Both functions take the same time for any world.
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

// Returns the number of turns until every rank has contributed to one element of the first `count`,
// at most `most`.
std::uint64_t turns(Dtype dtype, Op op, std::uint32_t world, std::uint64_t count,
                    std::uint64_t most) noexcept;

struct Segment {
  Dtype dtype;
  Op op;
  std::uint32_t source;  // the rank with this data; a check of reduced data ignores it
  std::uint32_t world;
  std::uint64_t first;  // element k of the segment is element first + k of the data
  std::uint64_t count;
  std::uint64_t turn;

  std::uint64_t bytes() const noexcept { return count * traits(dtype).size; }
};

// Throws Error for an unknown name or a number out of range.
Segment make_segment(std::string_view dtype, std::string_view op, std::int64_t source,
                     std::int64_t world, std::int64_t first, std::int64_t count, std::int64_t turn);

struct Mismatch {
  std::uint64_t wrong = 0;  // elements
  std::int64_t index = -1;  // the first wrong one's, from the segment's begin; -1: none
  double expected = 0;
  double got = 0;
};

// Both take any alignment, and throw Error if `address` is null and the segment is not empty.
// Writes the source's contribution.
void fill(void* address, const Segment& segment);
// Compares with the collective's result: over all ranks, or with op none the source's data.
Mismatch check(const void* address, const Segment& segment);

// A segment and where it begins in memory.
struct Placed {
  std::uintptr_t address;
  Segment segment;
};

// The same for segments of one dtype on `device`, all of them in one launch, until the work is
// done; check_on_device returns a Mismatch for each. No other work may use their memory meanwhile.
// Both use a stream and memory that stay from call to call, one set for each device: up to
// twice what the largest call needed, which is at most 34 MiB. Throw Error if an address is not
// memory of that GPU or not aligned to the dtype's size, and if the deadline passes: memory that
// the GPU still uses then stays allocated.
void fill_on_device(int device, const std::vector<Placed>& placed, Deadline deadline);
std::vector<Mismatch> check_on_device(int device, const std::vector<Placed>& placed,
                                      Deadline deadline);

// Random values to time collectives with: zeros take less power, and GPUs run faster on them.
// Word i of the data is (mix(i) & mask) | base: random mantissas and signs at one exponent, so that
// no value is zero, infinite or subnormal. The same on all ranks: nothing cancels in a sum.
struct Noise {
  std::uint64_t mask, base;
};

// low: at the smallest exponent, so that a sum can double for longest; else around 1. A product of
// floats always gets 1 and -1, which stay unchanged.
Noise noise_of(Dtype dtype, Op op, bool low) noexcept;

ODDRANK_HOST_DEVICE constexpr std::uint64_t noise_word(const Noise& noise,
                                                       std::uint64_t index) noexcept {
  return (mix(index) & noise.mask) | noise.base;
}

void fill_with_noise(void* address, std::size_t bytes, const Noise& noise) noexcept;
// The same on `device`, until it is done, through fill_on_device's stream. Throws Error if the
// address is no multiple of 8 or not memory of that GPU, and if the deadline passes.
void fill_with_noise_on_device(int device, std::uintptr_t address, std::size_t bytes,
                               const Noise& noise, Deadline deadline);

// The bits to write or to compare with, which device.cu copies to the GPU: all slots, twice in a
// row, so that the successors of any slot lie behind it. For a segment with fewer elements than
// slots only the segment's own are set.
class Table {
 public:
  // result: of the collective over all ranks; else, and with op none, `source`'s contribution.
  Table(const Segment& segment, bool result);

  // A value is right if its bits lie between `low`'s and `high`'s at its slot. The two are one
  // array unless exact() is false: then all values are positive, and ordered as their bits.
  const std::byte* low() const noexcept { return low_.data(); }
  const std::byte* high() const noexcept { return exact() ? low_.data() : high_.data(); }
  bool exact() const noexcept { return high_.empty(); }
  std::size_t bytes() const noexcept { return low_.size(); }
  // Returns the bits of -0.0, which equals 0 with other bits; 0 for integers.
  std::uint64_t negative_zero() const noexcept;

  // Returns the right value at an index, rounded to the dtype.
  double value_at(std::uint64_t index) const noexcept;

 private:
  double value(std::uint32_t slot) const noexcept;
  void set(std::uint32_t slot) noexcept;

  Segment segment_;
  Pattern pattern_;
  bool result_;
  Pattern::Tolerance tolerance_;
  std::vector<std::byte> low_, high_;
};

// Calls work(Word{}) with the unsigned integer of a dtype's size, and returns its result.
template <class Work>
auto with_word(Dtype dtype, const Work& work) {
  switch (traits(dtype).size) {
    case 1:
      return work(std::uint8_t{});
    case 2:
      return work(std::uint16_t{});
    case 4:
      return work(std::uint32_t{});
    default:
      return work(std::uint64_t{});
  }
}

// Calls visit(slot, offset, count) for each run of elements that lie in one block: the slot of the
// first (its successors' follow in the table), where it is in the segment, how many.
template <class Visit>
void for_each_run(const Segment& segment, Visit visit) {
  for (std::uint64_t offset = 0; offset < segment.count;) {
    const std::uint64_t index = segment.first + offset;
    const std::uint64_t within = index % kSlots;
    const std::uint64_t count = std::min(segment.count - offset, kSlots - within);
    visit(static_cast<std::size_t>(first_slot(index / kSlots) + within), offset, count);
    offset += count;
  }
}

}  // namespace oddrank::bench
