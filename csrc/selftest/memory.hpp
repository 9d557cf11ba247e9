// The memory test of a GPU: allocate, write a pattern, read it back on the GPU.
// C++17: included by memory.cu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "selftest/pattern.hpp"

namespace oddrank::selftest {

// Tests `bytes` (rounded down to 16) of `device` in the first `passes` of kPasses. Less than a few
// times the GPU's L2 cache is read from that cache, not from memory. Throws Error when the memory
// is not to be had, a kernel fails, or the deadline passes; then what the GPU is stuck with is left
// allocated.
MemoryResult verify_memory(int device, std::size_t bytes, std::uint64_t seed, Deadline deadline,
                           std::size_t passes = kQuickPasses,
                           std::optional<Damage> damage = std::nullopt);

// Seconds on the GPU of each of `repeats` copies of `bytes` within `device` by cudaMemcpy: the
// yardstick of verify_memory. Each copy reads and writes `bytes`.
std::vector<double> time_copies(int device, std::size_t bytes, int repeats, Deadline deadline);

}  // namespace oddrank::selftest
