// A segment's pattern as bits of its dtype: what the loops over the data compare with.
// C++17: included by .cu files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/verify/segment.hpp"
#include "bench/verify/slots.hpp"

namespace oddrank::bench {

// All slots, twice in a row, so that what follows any slot lies behind it. Of a segment with fewer
// elements than slots only those that it has are set.
class Table {
 public:
  // What `source` puts in.
  static Table of_contribution(const Segment& segment);
  // What the collective leaves: the result of all ranks, or with op none the source's data.
  static Table of_result(const Segment& segment);

  // A value is right where its bits lie between those of `low` and of `high` at its slot. The two
  // are one array unless exact() is false: then all values are positive, and ordered as their bits.
  const std::byte* low() const noexcept { return low_.data(); }
  const std::byte* high() const noexcept { return exact() ? low_.data() : high_.data(); }
  bool exact() const noexcept { return high_.empty(); }
  std::size_t bytes() const noexcept { return low_.size(); }
  // The bits that equal a zero without being those of one; 0: integers, of which there are none.
  std::uint64_t negative_zero() const noexcept;

  // The value that belongs at an index, rounded to the dtype.
  double value_at(std::uint64_t index) const noexcept;

 private:
  enum class Kind { kContribution, kResult };
  Table(const Segment& segment, Kind kind);
  double value(std::uint32_t slot) const noexcept;
  void set(std::uint32_t slot) noexcept;

  Segment segment_;
  Pattern pattern_;
  Kind kind_;
  Pattern::Tolerance tolerance_;
  std::vector<std::byte> low_, high_;
};

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
