// The pattern that the memory tests write and expect, on the host and on the GPU, and what they
// report. C++17: included by .cu files.
#pragma once

#include <cstddef>
#include <cstdint>

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

// Memory is tested twice, by the pattern and by its complement: every bit must hold 0 and 1.
inline constexpr std::uint64_t kPasses[] = {0, ~std::uint64_t{0}};

// The words that were not read as they were written.
struct Mismatches {
  std::uint64_t count = 0;     // in both passes
  std::uint64_t index = 0;     // of the first one known (in 64-bit words), if count > 0
  std::uint64_t expected = 0;  // what was written there
  std::uint64_t got = 0;       // what was read
};

struct MemoryResult {
  std::size_t bytes = 0;  // tested: whole blocks only
  Mismatches mismatches;
  double write_seconds = 0;  // of the faster pass
  double read_seconds = 0;
};

}  // namespace oddrank::selftest
