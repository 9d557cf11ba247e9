// How fast a GPU reads, writes and copies its own memory, and exchanges data with its host.
// C++17: included by bandwidth.cu.
#pragma once

#include <cstddef>
#include <vector>

#include "base/clock.hpp"

namespace oddrank::selftest {

// Seconds on the GPU of each repeat.
struct DeviceMemoryTimes {
  std::size_t bytes = 0;  // that a repeat reads or writes; a copy does both with each of them
  std::vector<double> read, write, copy;
};

struct TransferTimes {
  std::size_t bytes = 0;
  std::vector<double> to_device, to_host;
};

// Streams through two buffers of `bytes` (rounded down to whole blocks) of `device`. Less than a
// few times the L2 cache is read from that. Both throw Error when memory is not to be had, work
// fails, or the deadline passes; then what the GPU is stuck with is left allocated.
DeviceMemoryTimes time_device_memory(int device, std::size_t bytes, int repeats, Deadline deadline);
// Through pinned memory of the host, one direction after the other.
TransferTimes time_transfers(int device, std::size_t bytes, int repeats, Deadline deadline);

}  // namespace oddrank::selftest
