// The guard: a small process beside each worker. It outlives the worker's crash or end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "control/page.hpp"
#include "os/fd.hpp"

namespace oddrank::control {

// The worker's identity, and its guard's settings.
struct GuardOptions {
  std::int32_t rank = 0, world = 1, local_rank = 0, local_world = 1, node = 0;
  std::string host;
  std::string launcher;               // name of the launcher whose end ends the job; empty: none
  std::vector<std::string> fetcher;   // command that prints the root's address; empty: none
  std::string address;                // the root's; empty: the worker will send it
  std::string rendezvous_file;        // a file where the address may appear; empty: none
  bool published = false;             // the root already listens at `address`
  std::int64_t deadline_ns = 0;       // CLOCK_MONOTONIC: for the root's verdict
  std::int64_t join_deadline_ns = 0;  // CLOCK_MONOTONIC: for reaching the root
  std::int32_t no_verdict = 1;        // the worker's exit code if the root gives none
};

// Forks the guard of the calling process and returns its pid. The child never returns: it keeps
// only stdin, stdout, stderr, `guard_socket` and the worker's pidfd, has its own session, ignores
// launchers' signals, and is killed at deadline + 1.5 s at the latest. Throws SystemError. Call
// it before other threads exist.
pid_t fork_guard(const GuardOptions& options, Page& page, int guard_socket);

// Ignores the signals that launchers and users send to all processes of a job. For guard and judge.
void ignore_launchers_signals() noexcept;

}  // namespace oddrank::control
