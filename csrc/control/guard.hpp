// The guard: a small process beside each worker that outlives whatever happens to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "control/page.hpp"

namespace oddrank::control {

// Who a worker is and what its guard needs to know.
struct GuardOptions {
  std::int32_t rank = 0, world = 1, local_rank = 0, local_world = 1, node = 0;
  std::string host;
  std::string address;                // of the root; empty: the worker will hand it over
  std::string meeting_point;          // a file where the address may appear; empty: none
  bool published = false;             // the root listens at `address` already
  std::int64_t deadline_ns = 0;       // CLOCK_MONOTONIC: the verdict should be out
  std::int64_t join_deadline_ns = 0;  // the root should have been reached
  std::int32_t no_verdict = 1;        // the worker's exit code where the root gives none
};

// Forks the guard of the calling process and returns its pid. The child never returns: it keeps
// stdin, stdout, stderr and `guard_socket` only, has its own session, ignores what launchers send,
// and ends by deadline + 1.5 s whatever happens. Throws SystemError. Call before threads matter.
pid_t fork_guard(const GuardOptions& options, Page& page, int guard_socket);

// What launchers and people send to all processes of a job ends neither guard nor judge.
void ignore_launchers_signals() noexcept;

}  // namespace oddrank::control
