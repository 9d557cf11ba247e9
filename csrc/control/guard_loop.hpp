// The guard's state; see guard.hpp for what a guard is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/clock_exchange.hpp"
#include "control/guard.hpp"
#include "control/link.hpp"
#include "control/process.hpp"

namespace oddrank::control {

// Runs in the guard process. Owns both connections; the page belongs to the worker.
class GuardLoop {
 public:
  GuardLoop(GuardOptions options, Page& page, Fd worker_socket, ProcessWatch worker);
  // Returns when the worker has ended and nobody waits for its state, or at the deadline.
  void run();

 private:
  void dial(const std::string& address);
  void look_at_meeting_point(std::int64_t now);
  bool may_still_be_told(std::int64_t now) const;
  void step(std::int64_t now);
  void hear_worker();
  void hear_root(const Frame& frame);
  void look_at_worker(std::int64_t now);
  bool resolver_slow(std::int64_t now) const;
  State state(std::int64_t now) const;
  void report(std::int64_t now, std::uint32_t question);
  std::int64_t tick_ns() const;
  void exchange_clock(std::int64_t now);
  void end_worker(int code, std::int64_t patience_ns);
  void lose_root(const std::string& why, std::int64_t speak_in_ns, std::int64_t patience_ns);
  void speak_and_end();
  void check_deadlines(std::int64_t now);
  bool done() const;

  GuardOptions options_;
  Page& page_;
  ProcessWatch worker_;
  pid_t launcher_;  // the worker's parent at the start
  Channel to_worker_;
  bool worker_open_ = true;
  bool worker_dead_ = false;
  Life life_ = Life::kRunning;
  std::int64_t changed_ns_ = 0;
  std::int64_t last_look_ = 0;
  bool orphaned_ = false;
  Link link_;
  bool was_up_ = false;
  std::vector<Frame> outbox_;  // for the root, in the worker's order, until the link is up
  State reported_;
  std::int64_t last_ping_ = 0;
  ClockExchange clock_;
  std::int64_t looked_ns_ = 0;  // at the worker
  std::optional<Roster> roster_;
  // The root is lost: from then on no word of it can come.
  struct Loss {
    std::string why;
    std::int64_t speak_at, patience_ns;
    bool speaker;
  };
  std::optional<Loss> loss_;
  bool ending_ = false;
  std::int64_t kill_at_ = 0;
};

}  // namespace oddrank::control
