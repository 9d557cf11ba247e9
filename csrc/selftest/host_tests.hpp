// Tests of a host by one thread: how fast its memory and cores are, and whether its memory keeps
// what is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "selftest/memory_test.hpp"
namespace oddrank::selftest {

// Seconds of each repeat. A repeat counts its fastest slice, for other processes may disturb some.
struct MemoryTimes {
  std::size_t bytes = 0;  // read or written by a repeat; a copy does both
  std::vector<double> read, write, copy;
};

// Streams through two fresh buffers of `bytes` each, in CPU time of this thread, which leaves out
// waits for a core. `bytes` should be several times the last cache.
MemoryTimes time_host_memory(std::size_t bytes, int repeats, int slices);

struct ComputeTimes {
  double operations = 0;        // floating-point operations of a repeat
  std::vector<double> seconds;  // CPU time of this thread
};

// Multiplies and adds in registers, in a fixed order. A repeat lasts about `seconds` of wall time:
// a CPU quota only shows over a few of the kernel's periods (100 ms).
ComputeTimes time_host_compute(double seconds, int repeats);

// Writes the pattern of `pass` into words[0..count).
void fill_pattern(std::uint64_t* words, std::size_t count, std::uint64_t seed, const Pass& pass);
// Adds the words that differ from the pattern to `found`.
void find_mismatches(const std::uint64_t* words, std::size_t count, std::uint64_t seed,
                     const Pass& pass, Mismatches& found);

// Maps `bytes` of fresh memory, writes and reads it in the first `passes` of kPasses on this
// thread, unmaps it. The caller keeps `bytes` within the limits: too much wakes the OOM killer.
MemoryResult verify_host_memory(std::size_t bytes, std::uint64_t seed,
                                std::size_t passes = kQuickPasses,
                                std::optional<Damage> damage = std::nullopt);

}  // namespace oddrank::selftest
