// Fills and checks a segment in a GPU's memory.
// C++17: included by device.cu.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "bench/verify/segment.hpp"

namespace oddrank::bench {

// As in host.hpp, on `device`, by a stream of their own; through to the end. The caller has waited
// for what else reads or writes there. Besides the data they take less than 1 MiB of the GPU.
// Throw Error where the address isn't memory of that GPU, or not aligned to the dtype's size, and
// when the deadline passes: then what the GPU is stuck with is left allocated.
void fill_on_device(int device, std::uintptr_t address, const Segment& segment, Deadline deadline);
Mismatch check_on_device(int device, std::uintptr_t address, const Segment& segment,
                         Deadline deadline);

}  // namespace oddrank::bench
