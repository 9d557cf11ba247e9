// The collective recorder: notes every c10d operation of this process as it is issued. Free of
// torch's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/torch/collective_list.hpp"

namespace oddrank::trace {

// Starts over with an empty list of at most `limit` entries. The first call puts our kernels into
// torch's dispatcher, where they stay until the process ends: call it while no other thread issues
// a collective.
void start_collectives(std::size_t limit);

// Operations pass through unrecorded from now on. What is recorded stays readable.
void stop_collectives() noexcept;

std::vector<Collective> collectives();

// How many entries the limit (or want of memory) has cost since the start.
std::uint64_t dropped_collectives();

}  // namespace oddrank::trace
