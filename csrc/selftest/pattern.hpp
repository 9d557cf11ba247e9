// The pattern that the memory tests write and expect, on the host and on the GPU, and what they
// report. C++17: included by .cu files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define ODDRANK_HOST_DEVICE __host__ __device__
#else
#define ODDRANK_HOST_DEVICE
#endif

namespace oddrank::selftest {

// The 64-bit word that belongs at `index`. Different for every index (a wrong address line shows),
// keyed (yesterday's contents never fit), and one multiplication (as fast as memory).
ODDRANK_HOST_DEVICE constexpr std::uint64_t pattern(std::uint64_t index, std::uint64_t seed) {
  const std::uint64_t product = (index ^ seed) * 0x9E3779B97F4A7C15u;
  return product ^ (product >> 32);
}

// What a pass of a memory test fills the memory with: `pattern`; each word with its own number (a
// word that lands elsewhere tells where it belongs); a single set bit, in each word another one.
enum class Filling : std::uint32_t { kRandom, kAddress, kWalking };

template <Filling filling>
ODDRANK_HOST_DEVICE constexpr std::uint64_t word_at(std::uint64_t index, std::uint64_t seed) {
  if constexpr (filling == Filling::kAddress) return index;
  if constexpr (filling == Filling::kWalking) return std::uint64_t{1} << ((index + seed) & 63);
  return pattern(index, seed);
}

// flip: what every word is changed by. A filling comes with its complement: every bit must hold 0
// and 1.
struct Pass {
  Filling filling;
  std::uint64_t flip;
  const char* name;
};
inline constexpr std::uint64_t kAllBits = ~std::uint64_t{0};
inline constexpr Pass kPasses[] = {
    {Filling::kRandom, 0, "random"},       {Filling::kRandom, kAllBits, "random, inverted"},
    {Filling::kAddress, 0, "own address"}, {Filling::kAddress, kAllBits, "own address, inverted"},
    {Filling::kWalking, 0, "walking one"}, {Filling::kWalking, kAllBits, "walking zero"},
};
inline constexpr std::size_t kAllPasses = sizeof kPasses / sizeof kPasses[0];
inline constexpr std::size_t kQuickPasses = 2;

// `use(constant)` with the filling as a constant, so that it is chosen outside the loops.
template <class Use>
void with_filling(Filling filling, const Use& use) {
  switch (filling) {
    case Filling::kRandom:
      return use(std::integral_constant<Filling, Filling::kRandom>{});
    case Filling::kAddress:
      return use(std::integral_constant<Filling, Filling::kAddress>{});
    case Filling::kWalking:
      return use(std::integral_constant<Filling, Filling::kWalking>{});
  }
}

// A word that is spoilt after a pass has written it, for tests.
struct Damage {
  std::size_t index;
  std::size_t pass = 0;
};

// The words that were not read as they were written.
struct Mismatches {
  std::uint64_t count = 0;     // in all passes
  std::uint64_t bits = 0;      // that were wrong in any of them
  std::uint64_t index = 0;     // of the first one known (in 64-bit words), if count > 0
  std::uint64_t expected = 0;  // what was written there
  std::uint64_t got = 0;       // what was read
  const char* pass = "";       // in which pass
};

struct MemoryResult {
  std::size_t bytes = 0;  // tested: whole blocks only
  Mismatches mismatches;
  double write_seconds = 0;  // of the faster pass
  double read_seconds = 0;
};

}  // namespace oddrank::selftest
