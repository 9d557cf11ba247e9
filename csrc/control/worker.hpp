// The worker's side of the control plane: marks, messages to the guard, the watchdog thread.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "control/link.hpp"
#include "control/messages.hpp"
#include "control/net.hpp"
#include "control/page.hpp"

namespace oddrank::control {

// Options of a worker's guard: a small process beside it, which outlives its crash or end. The end
// of the launcher ends the job. Without an address the worker will send it.
struct GuardOptions : GuardIdentity {
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

// One per process, never destroyed: its watchdog thread lives as long as the process. The watchdog
// uses no Python: it works even if another thread never releases the GIL.
class Worker {
 public:
  // Maps the page, forks the guard, starts the watchdog and sets a timer that kills this process at
  // deadline + 1.5 s. From now on SIGTERM and SIGINT are noted on the page and don't end the
  // process. Call once, before other threads exist. Throws SystemError.
  static Worker& start(const GuardOptions& options);

  // Set the worker's marks on the page, from any thread. About 100 ns.
  void mark_stage(std::uint32_t number, std::string_view stage) noexcept;
  // `in_join`: does nothing once a stage has begun, for a thread that does not know the current
  // one.
  void mark_step(std::string_view step, bool waiting, bool in_join = false) noexcept;

  struct Signal {
    enum class What : std::uint8_t { kGo, kEnd, kLost, kTimeout } what = What::kTimeout;
    Go go;
    int exit_code = 0;
  };
  // Waits for the next GO or END. A GO is returned once, END every time. kLost: the guard is gone.
  Signal wait(Deadline deadline);

  // Returns the offset to the root's CLOCK_MONOTONIC, which the guard measures until the deadline.
  // `shortcut`: offset 0 if both read the same clock. Throws Error. One thread at a time.
  ClockAnswer sync_clock(Deadline deadline, bool shortcut);
  // Returns Timestamps that show each collective on this worker's page.
  Timestamps timestamps(std::int64_t capacity) { return Timestamps(page_, capacity); }

  void send_address(const std::string& address);
  void publish(std::string_view payload);
  void fail(std::string_view text);
  pid_t guard() const noexcept { return guard_; }

 private:
  Worker(GuardOptions options, Page& page, Fd socket);
  void watch();
  void take_frames(bool open);
  void write_frame(FrameKind kind, std::string_view payload);

  GuardOptions options_;
  Page& page_;
  Fd socket_;
  pid_t guard_ = -1;
  std::mutex mark_mutex_;
  Progress mark_;       // guarded by mark_mutex_, as are writes of the page's texts
  FrameReader reader_;  // used only by the watchdog

  std::mutex write_mutex_;
  std::mutex mutex_;  // guards all below
  std::condition_variable heard_;
  std::deque<Go> goes_;
  std::optional<int> end_;
  std::uint32_t clock_question_ = 0;
  std::optional<ClockAnswer> clock_answer_;
  bool lost_ = false;
};

}  // namespace oddrank::control
