// Fills and checks a segment in the memory of the host (host.cpp) or of a GPU (device.cu).
// C++17: included by device.cu.
#pragma once

#include <cstdint>

#include "bench/verify/table.hpp"
#include "os/clock.hpp"

namespace oddrank::bench {

// `address` needs no alignment. Both throw Error if it is null and the segment is not empty.
// Writes the source's contribution.
void fill(void* address, const Segment& segment);
// Compares with the collective's result: over all ranks, or with op none the source's data.
Mismatch check(const void* address, const Segment& segment);

// The same on `device`, on an own stream, until the work is done. No other work may use the
// memory meanwhile. They take less than 1 MiB of the GPU besides the data. Throw Error if the
// address is not memory of that GPU or not aligned to the dtype's size, and if the deadline passes:
// memory that the GPU still uses then stays allocated.
void fill_on_device(int device, std::uintptr_t address, const Segment& segment, Deadline deadline);
Mismatch check_on_device(int device, std::uintptr_t address, const Segment& segment,
                         Deadline deadline);

}  // namespace oddrank::bench
