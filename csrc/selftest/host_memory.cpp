// Writes and reads patterns through host memory.
#include "selftest/host_memory.hpp"

#include <algorithm>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "selftest/host_mapping.hpp"

namespace oddrank::selftest {
namespace {

// Large enough that the loop over it is tight, small enough that a second look at a bad one costs
// nothing.
constexpr std::size_t kBlock = 4096;

double faster(double before, std::int64_t nanoseconds) {
  const double seconds = static_cast<double>(nanoseconds) * 1e-9;
  return before == 0 ? seconds : std::min(before, seconds);
}

template <Filling filling>
void find(const std::uint64_t* words, std::size_t count, std::uint64_t seed, const Pass& pass,
          Mismatches& found) {
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, count);
    std::uint64_t difference = 0;
    for (std::size_t i = begin; i < end; ++i) {
      difference |= words[i] ^ word_at<filling>(i, seed) ^ pass.flip;
    }
    if (difference == 0) continue;
    found.bits |= difference;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint64_t expected = word_at<filling>(i, seed) ^ pass.flip;
      if (words[i] == expected || found.count++ != 0) continue;
      found.index = i;
      found.expected = expected;
      found.got = words[i];
      found.pass = pass.name;
    }
  }
}

}  // namespace

void fill_pattern(std::uint64_t* words, std::size_t count, std::uint64_t seed, const Pass& pass) {
  with_filling(pass.filling, [&](auto filling) {
    for (std::size_t i = 0; i < count; ++i) words[i] = word_at<filling()>(i, seed) ^ pass.flip;
  });
}

void find_mismatches(const std::uint64_t* words, std::size_t count, std::uint64_t seed,
                     const Pass& pass, Mismatches& found) {
  with_filling(pass.filling,
               [&](auto filling) { find<filling()>(words, count, seed, pass, found); });
}

MemoryResult verify_host_memory(std::size_t bytes, std::uint64_t seed, std::size_t passes,
                                std::optional<Damage> damage) {
  const std::size_t count = bytes / sizeof(std::uint64_t);
  if (count == 0) throw Error("a memory test needs at least 8 bytes");
  if (damage && damage->index >= count) throw Error("there is no word to damage at that index");
  const HostMapping memory(count * sizeof(std::uint64_t));
  MemoryResult result;
  result.bytes = count * sizeof(std::uint64_t);
  for (std::size_t i = 0; i < std::min(passes, kAllPasses); ++i) {
    const Pass& pass = kPasses[i];
    const std::int64_t begin = monotonic_ns();
    fill_pattern(memory.words(), count, seed, pass);
    const std::int64_t written = monotonic_ns();
    if (damage && damage->pass == i) memory.words()[damage->index] ^= 1;
    asm volatile("" ::: "memory");  // the compiler must not know what was written
    find_mismatches(memory.words(), count, seed, pass, result.mismatches);
    result.write_seconds = faster(result.write_seconds, written - begin);
    result.read_seconds = faster(result.read_seconds, monotonic_ns() - written);
  }
  return result;
}

}  // namespace oddrank::selftest
