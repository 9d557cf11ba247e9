// The processes of a rank: watches one that is not a child, by /proc and, if the kernel has them,
// pidfds; ends one at a deadline; keeps the process that the launcher started (the keeper).
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "control/messages.hpp"
#include "os/fd.hpp"
#include "os/proc.hpp"

namespace oddrank::control {

const char* name_of(Liveness life) noexcept;

// Watches one process, child or not. Keeps a pidfd, which becomes readable when the process dies
// and, from Linux 6.15 on, gives its exit status even after its parent has reaped it.
class ProcessWatch {
 public:
  explicit ProcessWatch(pid_t pid);
  // For poll(): readable once the process is dead; -1 if the kernel has no pidfds.
  int fd() const noexcept { return pidfd_.get(); }
  pid_t pid() const noexcept { return pid_; }
  std::uint64_t start_time() const noexcept { return start_time_; }
  pid_t parent() const noexcept { return parent_; }
  // Reads the state now. A dead process stays dead. Uninterruptible: 1 s in state D without CPU
  // time. Zombie: the main thread ended 0.3 s ago, others still run.
  const ProcessState& look();
  // The state at the last look().
  const ProcessState& last() const noexcept { return state_; }
  void kill(int number = SIGKILL) noexcept;

 private:
  bool dead_by_pidfd() const noexcept;
  void note_death(const ProcStat& stat);

  pid_t pid_;
  Fd pidfd_;
  std::uint64_t start_time_ = 0;
  pid_t parent_ = 0;
  ProcessState state_;
  std::int64_t zombie_since_ = 0;
  std::int64_t uninterruptible_since_ = 0;
  std::uint64_t uninterruptible_ticks_ = 0;
};

// For guards and judges, which outlive launchers' signals and hold nothing of the process that they
// were forked from.
//
// Closes all descriptors from 3 on except these two; each may be -1.
void close_descriptors_but(int socket, int watch) noexcept;
// Ignores the signals that launchers and users send to all processes of a job.
void ignore_launchers_signals() noexcept;
// The same, with the default action for all others, and none blocked.
void reset_signals() noexcept;

// Sets a kernel timer that kills this process at `deadline_ns` (CLOCK_MONOTONIC), even if it is
// stopped. Not inherited by fork. Throws SystemError.
void kill_this_process_at(std::int64_t deadline_ns);

// Runs the keeper: the process that the launcher started as the rank; the real rank is its child.
// Waits until all children of this process have ended, then ends the way the child `rank` ended.
// Leaves a dead rank a zombie for 0.3 s, so that its guard can read how it died. Forwards the
// signals in `passed_on`, which must be blocked already, to the rank with their sender's pid. The
// kernel kills this process at `deadline_ns` (CLOCK_MONOTONIC) at the latest.
[[noreturn]] void keep(pid_t rank, std::int64_t deadline_ns, const std::vector<int>& passed_on);

}  // namespace oddrank::control
