// The worker's side of the control plane: marks, messages to the guard, and the watchdog thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "control/guard.hpp"
#include "control/laps.hpp"
#include "control/messages.hpp"
#include "control/net.hpp"

namespace oddrank::control {

// One per process, never destroyed: its watchdog thread lives as long as the process and uses
// nothing of Python. What the watchdog does works while another thread holds the GIL for ever.
class Worker {
 public:
  // Maps the page, forks the guard, blocks SIGTERM and SIGINT for this thread and all later ones,
  // starts the watchdog and arms this process's own end at deadline + 1.5 s. Call once, before
  // other threads exist. Throws SystemError.
  static Worker& start(const GuardOptions& options);

  // Marks, from any thread. About 100 ns.
  void mark_stage(std::uint32_t number, std::string_view stage) noexcept;
  void mark_step(std::string_view step, bool waiting) noexcept;
  // For a thread that does not know how far the others are: nothing once a stage has begun.
  void mark_waiting_in_join(std::string_view step) noexcept;

  struct Signal {
    enum class What : std::uint8_t { kGo, kEnd, kLost, kTimeout } what = What::kTimeout;
    Go go;
    int exit_code = 0;
  };
  // Waits for the root's next word; end stays, go is taken once. kLost: the guard is gone.
  Signal wait(std::int64_t deadline_ns);

  // How far the root's CLOCK_MONOTONIC is from ours, as the guard finds out by then; without
  // `shortcut` by exchanges on the root's own host too. Throws Error. One thread at a time.
  ClockAnswer sync_clock(std::int64_t deadline_ns, bool shortcut);
  // Laps that show on this worker's page.
  Laps laps(std::int64_t capacity) { return Laps(page_, capacity); }

  void send_address(const std::string& address);
  void publish(std::string_view payload);
  void fail(std::string_view text);
  std::int64_t deadline_ns() const noexcept { return options_.deadline_ns; }
  pid_t guard() const noexcept { return guard_; }

 private:
  Worker(GuardOptions options, Page& page, Fd socket, Fd signals);
  void watch();
  void take_signal() noexcept;
  void take_frames(bool open);
  void write_frame(Kind kind, std::string_view payload);

  GuardOptions options_;
  Page& page_;
  Fd socket_;
  Fd signals_;
  pid_t guard_ = -1;
  std::mutex mark_mutex_;
  Mark mark_;           // guarded by it, and the page's writes with it
  FrameReader reader_;  // the watchdog's alone

  std::mutex write_mutex_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable heard_;
  std::deque<Go> goes_;
  std::optional<int> end_;
  std::uint32_t clock_question_ = 0;
  std::optional<ClockAnswer> clock_answer_;
  bool lost_ = false;
};

}  // namespace oddrank::control
