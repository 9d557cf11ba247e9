// How fast a host's memory and cores are for one thread, in slices that are timed one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace oddrank::selftest {

// Seconds of each repeat. A repeat is the fastest of a few slices: what another process takes away
// for a moment is not the memory's.
struct MemoryTimes {
  std::size_t bytes = 0;  // that a repeat reads or writes; a copy does both with each of them
  std::vector<double> read, write, copy;
};

// Streams through two fresh buffers of `bytes` each, in CPU time of this thread: to wait for a core
// is not the memory's fault either. `bytes` should be several times the last cache.
MemoryTimes time_host_memory(std::size_t bytes, int repeats, int slices);

struct ComputeTimes {
  double operations = 0;        // floating point operations of a repeat
  std::vector<double> seconds;  // of this thread on a core
};

// Multiplies and adds in registers, in a fixed order. A repeat lasts about `seconds` of wall time:
// a CPU quota only shows over a few of the kernel's periods (100 ms).
ComputeTimes time_host_compute(double seconds, int repeats);

}  // namespace oddrank::selftest
