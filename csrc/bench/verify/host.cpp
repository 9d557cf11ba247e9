// Copies a table into host memory, and compares memory with it, at the speed of memory.
#include <cstring>

#include "bench/verify/table.hpp"
#include "bench/verify/verify.hpp"
#include "os/error.hpp"

namespace oddrank::bench {
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
  const Table table = Table::of_contribution(segment);
  const std::size_t size = traits(segment.dtype).size;
  auto* const data = static_cast<std::byte*>(address);
  for_each_run(segment, [&](std::size_t slot, std::uint64_t offset, std::uint64_t count) {
    std::memcpy(data + offset * size, table.low() + slot * size, count * size);
  });
}

Mismatch check(const void* address, const Segment& segment) {
  need(address, segment);
  const Table table = Table::of_result(segment);
  const auto* const data = static_cast<const std::byte*>(address);
  switch (traits(segment.dtype).size) {
    case 1:
      return check_words<std::uint8_t>(data, segment, table);
    case 2:
      return check_words<std::uint16_t>(data, segment, table);
    case 4:
      return check_words<std::uint32_t>(data, segment, table);
    default:
      return check_words<std::uint64_t>(data, segment, table);
  }
}

}  // namespace oddrank::bench
