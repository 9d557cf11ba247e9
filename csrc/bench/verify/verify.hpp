// Fills and checks a segment of a rank's data, by a table of its pattern as bits of its dtype: in
// the memory of the host (verify.cpp) or of a GPU (device.cu). C++17: included by device.cu.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/verify/pattern.hpp"
#include "os/clock.hpp"

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

// Throws Error for an unknown name or a number out of range.
Segment make_segment(std::string_view dtype, std::string_view op, std::int64_t source,
                     std::int64_t world, std::int64_t first, std::int64_t count, std::int64_t turn);

struct Mismatch {
  std::uint64_t wrong = 0;  // elements
  std::int64_t index = -1;  // of the first one, from the segment's begin; -1: none
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
// floats always gets 1 and -1, which stay what they are.
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
// row, so that the successors of any slot lie behind it. Of a segment with fewer elements than
// slots only the segment's own are set.
class Table {
 public:
  // result: of the collective over all ranks; else, and with op none, what `source` contributes.
  Table(const Segment& segment, bool result);

  // A value is right where its bits lie between those of `low` and of `high` at its slot. The two
  // are one array unless exact() is false: then all values are positive, and ordered as their bits.
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

// Calls work(Word{}) with the unsigned integer of a dtype's size, and returns what it returns.
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
