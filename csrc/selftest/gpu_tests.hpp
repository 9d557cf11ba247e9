// Tests of a GPU's memory: whether it keeps a pattern, and how fast it and the way to its host are.
// C++17: included by gpu_memory.cu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "os/clock.hpp"
#include "selftest/memory_test.hpp"

namespace oddrank::selftest {

// Tests `bytes` (rounded down to 16) of `device` in the first `passes` of kPasses. `bytes` should
// be several times the L2 cache. Throws Error if the allocation or a kernel fails, or the deadline
// passes: memory that the GPU still uses then stays allocated.
MemoryResult verify_memory(int device, std::size_t bytes, std::uint64_t seed, Deadline deadline,
                           std::size_t passes = kQuickPasses,
                           std::optional<Damage> damage = std::nullopt);

// Returns the GPU's seconds of each of `repeats` copies of `bytes` within `device` by cudaMemcpy,
// the yardstick of verify_memory. Each copy reads and writes `bytes`.
std::vector<double> time_copies(int device, std::size_t bytes, int repeats, Deadline deadline);

// The GPU's seconds of each repeat.
struct DeviceMemoryTimes {
  std::size_t bytes = 0;  // read or written by a repeat; a copy does both
  std::vector<double> read, write, copy;
};

struct TransferTimes {
  std::size_t bytes = 0;
  std::vector<double> to_device, to_host;
};

// Streams through two buffers of `bytes` (rounded down to whole blocks) of `device`; `bytes` should
// be several times the L2 cache. Both functions throw Error if an allocation or work fails, or the
// deadline passes: memory that the GPU still uses then stays allocated.
DeviceMemoryTimes time_device_memory(int device, std::size_t bytes, int repeats, Deadline deadline);
// Copies through pinned memory of the host, one direction after the other.
TransferTimes time_transfers(int device, std::size_t bytes, int repeats, Deadline deadline);

}  // namespace oddrank::selftest
