// Mixing of 64-bit words, on the host and on the GPU. C++17: included by .cu files.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define ODDRANK_HOST_DEVICE __host__ __device__
#else
#define ODDRANK_HOST_DEVICE
#endif

namespace oddrank {

// The step between two states of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", 2014): 2^64 divided by the golden ratio.
inline constexpr std::uint64_t kMixStep = 0x9E3779B97F4A7C15U;

// The finalizer of SplitMix64: every bit of `x` changes half of the result's. Maps 0 to 0.
ODDRANK_HOST_DEVICE constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

// The 64-bit word that belongs at `index`. Different for every index (a wrong address line shows),
// keyed (yesterday's contents never fit), and one multiplication (as fast as memory).
ODDRANK_HOST_DEVICE constexpr std::uint64_t keyed_word(std::uint64_t index, std::uint64_t seed) {
  const std::uint64_t product = (index ^ seed) * kMixStep;
  return product ^ (product >> 32U);
}

// Hashes a number: a file's numbers may be chosen to share one bucket of an identity hash.
struct MixedHash {
  std::size_t operator()(std::uint64_t number) const noexcept {
    return static_cast<std::size_t>(mix_bits(number + kMixStep));
  }
};

}  // namespace oddrank
