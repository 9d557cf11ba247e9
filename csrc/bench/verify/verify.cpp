// Makes the table of a segment's pattern; copies it into host memory and compares memory with it,
// at the speed of memory; fills host memory with random values.
#include "bench/verify/verify.hpp"

#include <cstring>
#include <limits>
#include <string>

#include "os/error.hpp"

namespace oddrank::bench {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "low bytes come first");

std::uint64_t in_range(const char* name, std::int64_t value, std::int64_t least,
                       std::int64_t most) {
  if (value < least || value > most) {
    throw Error(std::string(name) + " is " + std::to_string(value) + ", not between " +
                std::to_string(least) + " and " + std::to_string(most));
  }
  return static_cast<std::uint64_t>(value);
}

// Repeats the lowest `size` bytes over 8.
std::uint64_t repeated(std::uint64_t bits, unsigned size) noexcept {
  for (unsigned have = size; have < 8; have *= 2) bits |= bits << (8 * have);
  return bits;
}

void put(std::vector<std::byte>& table, std::uint32_t slot, std::uint64_t bits,
         unsigned size) noexcept {
  std::memcpy(table.data() + std::size_t{slot} * size, &bits, size);
  std::memcpy(table.data() + (std::size_t{slot} + kSlots) * size, &bits, size);
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

Table::Table(const Segment& segment, bool result)
    : segment_(segment),
      pattern_(segment.dtype, segment.op, segment.world, segment.turn),
      result_(result && segment.op != Op::kNone) {
  const std::size_t bytes = std::size_t{2} * kSlots * traits(segment.dtype).size;
  low_.resize(bytes);
  if (result) tolerance_ = pattern_.tolerance();
  if (tolerance_.ulp != 0) high_.resize(bytes);
  if (segment.count < kSlots) {
    for (std::uint64_t k = 0; k < segment.count; ++k) set(slot_of(segment.first + k));
  } else {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) set(slot);
  }
}

std::uint64_t Table::negative_zero() const noexcept {
  const DtypeTraits& t = traits(segment_.dtype);
  return t.is_float() ? std::uint64_t{1} << (8 * t.size - 1) : 0;
}

double Table::value_at(std::uint64_t index) const noexcept {
  return decode(segment_.dtype, encode(segment_.dtype, value(slot_of(index))));
}

double Table::value(std::uint32_t slot) const noexcept {
  return result_ ? pattern_.result(slot) : pattern_.contribution(segment_.source, slot);
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

template <class Word>
Word load(const std::byte* from) noexcept {
  Word word;
  std::memcpy(&word, from, sizeof word);  // wherever it lies
  return word;
}

template <class Word>
Word is_wrong(Word got, Word least, Word most) noexcept {
  return static_cast<Word>(got - least) > static_cast<Word>(most - least) ? 1 : 0;
}

// Whether all of a run is right. No branch and a fixed number at a time: the compiler makes vector
// instructions of it.
template <class Word>
bool all_in_range(const std::byte* data, const std::byte* low, const std::byte* high,
                  std::uint64_t count) noexcept {
  constexpr std::size_t kStep = 64;
  Word wrong = 0;
  std::size_t i = 0;
  const auto look = [&](std::size_t at) {
    return is_wrong(load<Word>(data + at * sizeof(Word)), load<Word>(low + at * sizeof(Word)),
                    load<Word>(high + at * sizeof(Word)));
  };
  for (; i + kStep <= count; i += kStep) {
    for (std::size_t k = 0; k < kStep; ++k) wrong |= look(i + k);
  }
  for (; i < count; ++i) wrong |= look(i);
  return wrong == 0;
}

// Element by element, where something differs.
template <class Word>
void find_wrong(const std::byte* data, const Table& table, std::size_t slot, std::uint64_t offset,
                std::uint64_t count, Mismatch& found) noexcept {
  const auto negative_zero = static_cast<Word>(table.negative_zero());
  for (std::size_t i = 0; i < count; ++i) {
    const Word got = load<Word>(data + i * sizeof(Word));
    const Word least = load<Word>(table.low() + (slot + i) * sizeof(Word));
    const Word most = load<Word>(table.high() + (slot + i) * sizeof(Word));
    if (is_wrong(got, least, most) == 0 || (got == negative_zero && least == 0)) continue;
    if (found.wrong++ == 0) found.index = static_cast<std::int64_t>(offset + i);
  }
}

template <class Word>
Mismatch check_words(const std::byte* data, const Segment& segment, const Table& table) noexcept {
  Mismatch found;
  for_each_run(segment, [&](std::size_t slot, std::uint64_t offset, std::uint64_t count) {
    const std::byte* const run = data + offset * sizeof(Word);
    const std::size_t at = slot * sizeof(Word);
    const bool right = table.exact()
                           ? std::memcmp(run, table.low() + at, count * sizeof(Word)) == 0
                           : all_in_range<Word>(run, table.low() + at, table.high() + at, count);
    if (!right) find_wrong<Word>(run, table, slot, offset, count, found);
  });
  if (found.wrong == 0) return found;
  const auto index = static_cast<std::uint64_t>(found.index);
  found.expected = table.value_at(segment.first + index);
  found.got = decode(segment.dtype, load<Word>(data + index * sizeof(Word)));
  return found;
}

void need(const void* address, const Segment& segment) {
  if (address == nullptr && segment.count > 0) throw Error("there is no buffer at address 0");
}

}  // namespace

void fill(void* address, const Segment& segment) {
  need(address, segment);
  const Table table(segment, false);
  const std::size_t size = traits(segment.dtype).size;
  auto* const data = static_cast<std::byte*>(address);
  for_each_run(segment, [&](std::size_t slot, std::uint64_t offset, std::uint64_t count) {
    std::memcpy(data + offset * size, table.low() + slot * size, count * size);
  });
}

Mismatch check(const void* address, const Segment& segment) {
  need(address, segment);
  const Table table(segment, true);
  const auto* const data = static_cast<const std::byte*>(address);
  return with_word(segment.dtype,
                   [&](auto word) { return check_words<decltype(word)>(data, segment, table); });
}

Noise noise_of(Dtype dtype, Op op, bool low) noexcept {
  const DtypeTraits& t = traits(dtype);
  const bool product = op == Op::kProd;
  if (!t.is_float()) return {~std::uint64_t{0}, product ? repeated(1, t.size) : 0};  // odd
  const std::uint64_t sign = std::uint64_t{1} << (8 * t.size - 1);
  const std::uint64_t mantissa = product ? 0 : (std::uint64_t{1} << t.mantissa_bits) - 1;
  const std::uint64_t exponent =
      low && !product ? 2 : (std::uint64_t{1} << (t.exponent_bits - 1)) - 1;
  return {repeated(sign | mantissa, t.size), repeated(exponent << t.mantissa_bits, t.size)};
}

void fill_with_noise(void* address, std::size_t bytes, const Noise& noise) noexcept {
  auto* const data = static_cast<std::byte*>(address);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = noise_word(noise, at / 8);
    std::memcpy(data + at, &word, std::min<std::size_t>(8, bytes - at));
  }
}

}  // namespace oddrank::bench
