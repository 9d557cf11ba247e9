// Watching another process without being its parent: /proc and, where the kernel has them, pidfds.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "base/proc_stat.hpp"
#include "control/messages.hpp"

namespace oddrank::control {

// The kernel function that a process sleeps in; "" where not readable.
std::string read_wchan(pid_t pid);

struct ProcessState {
  Life life = Life::kRunning;
  int signal = 0;      // 0: none known
  int exit_code = -1;  // -1: none known
  std::string wchan;
};

// Watches one process that may belong to anybody's parent. Keeps a pidfd, which becomes readable on
// its death and, from Linux 6.15 on, still knows how it died when its parent has already asked.
class ProcessWatch {
 public:
  explicit ProcessWatch(pid_t pid);
  // For poll(): readable once the process is dead; -1 where the kernel has no pidfds.
  int fd() const noexcept { return pidfd_.get(); }
  pid_t pid() const noexcept { return pid_; }
  std::uint64_t start_time() const noexcept { return start_time_; }
  pid_t parent() const noexcept { return parent_; }
  // The state now. A dead process stays dead. A process counts as uninterruptible after one second
  // in state D without any CPU time.
  const ProcessState& look();
  // What the last look() saw.
  const ProcessState& last() const noexcept { return state_; }
  void kill() noexcept;

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

// Arms a timer of the kernel that kills this process at `deadline_ns` (CLOCK_MONOTONIC) whatever it
// does then: stopped processes too. Not inherited by fork. Throws SystemError.
void kill_this_process_at(std::int64_t deadline_ns);

}  // namespace oddrank::control
