// The collective recorder: tells a sink of every c10d operation of this process as it is issued and
// as it ends. Free of torch's headers.
#pragma once

#include "trace/record/collective_sink.hpp"

namespace oddrank::trace {

// From now on `sink`, which must live as long as the process, is told. The first call puts our
// kernels into torch's dispatcher, where they stay until the process ends: call it while no other
// thread issues a collective. Throws Error for a sink of another version.
void start_collectives(const CollectiveSink& sink);

// Operations pass through untold from now on; those that are open are still told to end.
void stop_collectives() noexcept;

}  // namespace oddrank::trace
