// Random values to time collectives with: zeros take less power, and GPUs run faster on them.
// C++17: included by .cu files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/verify/pattern.hpp"
#include "os/clock.hpp"

namespace oddrank::bench {

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

}  // namespace oddrank::bench
