// The collective recorder: reports the begin and end of every c10d operation of this process to a
// sink. Includes no torch header.
#pragma once

#include "trace/write/collective_sink.hpp"

namespace oddrank::trace {

// Reports to `sink` from now on; it must live as long as the process. The first call adds our
// kernels to torch's dispatcher, where they stay: call it while no other thread issues a
// collective. Throws Error for a sink of another version.
void start_collectives(const CollectiveSink& sink);

// Stops reporting new operations; open ones still report their end.
void stop_collectives() noexcept;

}  // namespace oddrank::trace
