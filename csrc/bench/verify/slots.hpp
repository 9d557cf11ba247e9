// Where an index of the data lies in the pattern, on the host and on the GPU.
// C++17: included by .cu files.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define ODDRANK_HOST_DEVICE __host__ __device__
#else
#define ODDRANK_HOST_DEVICE
#endif

namespace oddrank::bench {

// The pattern has this many values, its slots. Each block of so many indices holds all of them in
// order, begun at a slot of its own, so that filling and checking are copies out of a table that
// fits a core's cache, and yet nothing repeats. A prime: pieces of the sizes that programs use do
// not begin where blocks do.
inline constexpr std::uint32_t kSlots = 4093;

// Mixes all bits of a word (the finaliser of splitmix64: Steele, Lea, Flood, "Fast splittable
// pseudorandom number generators", 2014).
ODDRANK_HOST_DEVICE constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The slot of a block's first index.
ODDRANK_HOST_DEVICE constexpr std::uint32_t first_slot(std::uint64_t block) noexcept {
  return static_cast<std::uint32_t>(mix(block) % kSlots);
}

ODDRANK_HOST_DEVICE constexpr std::uint32_t slot_of(std::uint64_t index) noexcept {
  return static_cast<std::uint32_t>((index % kSlots + first_slot(index / kSlots)) % kSlots);
}

}  // namespace oddrank::bench
