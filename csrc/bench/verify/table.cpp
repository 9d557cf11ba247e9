// Fills the table of a segment's pattern.
#include "bench/verify/table.hpp"

#include <cstring>
#include <limits>
#include <string>

#include "os/error.hpp"

namespace oddrank::bench {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "low bytes come first");

void put(std::vector<std::byte>& table, std::uint32_t slot, std::uint64_t bits,
         unsigned size) noexcept {
  std::memcpy(table.data() + std::size_t{slot} * size, &bits, size);
  std::memcpy(table.data() + (std::size_t{slot} + kSlots) * size, &bits, size);
}

}  // namespace

Table::Table(const Segment& segment, Kind kind)
    : segment_(segment),
      pattern_(segment.dtype, segment.op, segment.world, segment.turn),
      kind_(kind) {
  const std::size_t bytes = std::size_t{2} * kSlots * traits(segment.dtype).size;
  low_.resize(bytes);
  if (kind == Kind::kResult) tolerance_ = pattern_.tolerance();
  if (tolerance_.ulp != 0) high_.resize(bytes);
  if (segment.count < kSlots) {
    for (std::uint64_t k = 0; k < segment.count; ++k) set(slot_of(segment.first + k));
  } else {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) set(slot);
  }
}

Table Table::of_contribution(const Segment& segment) { return {segment, Kind::kContribution}; }
Table Table::of_result(const Segment& segment) { return {segment, Kind::kResult}; }

std::uint64_t Table::negative_zero() const noexcept {
  const DtypeTraits& t = traits(segment_.dtype);
  return t.is_float() ? std::uint64_t{1} << (8 * t.size - 1) : 0;
}

double Table::value_at(std::uint64_t index) const noexcept {
  return decode(segment_.dtype, encode(segment_.dtype, value(slot_of(index))));
}

double Table::value(std::uint32_t slot) const noexcept {
  return kind_ == Kind::kContribution || segment_.op == Op::kNone
             ? pattern_.contribution(segment_.source, slot)
             : pattern_.result(slot);
}

void Table::set(std::uint32_t slot) noexcept {
  const unsigned size = traits(segment_.dtype).size;
  const double right = value(slot);
  if (exact()) {
    put(low_, slot, encode(segment_.dtype, right), size);
    return;
  }
  const auto ulp = static_cast<std::uint64_t>(tolerance_.ulp);
  const std::uint64_t low = encode(segment_.dtype, right * (1 - tolerance_.relative));
  put(low_, slot, low - std::min(low, ulp), size);
  put(high_, slot, encode(segment_.dtype, right * (1 + tolerance_.relative)) + ulp, size);
}

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
