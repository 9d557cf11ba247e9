// The guard: a small process beside each worker. It outlives the worker's crash or end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "control/clock_exchange.hpp"
#include "control/link.hpp"
#include "control/page.hpp"
#include "control/process.hpp"
#include "control/rendezvous.hpp"
#include "os/fd.hpp"

namespace oddrank::control {

// The end of the launcher ends the job. Without an address the worker will send it.
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

// Runs in the guard process. Owns the connections to worker and root; the page is the worker's.
class Guard {
 public:
  Guard(GuardOptions options, Page& page, Fd worker_socket, ProcessWatch worker);
  // Returns when the worker has ended and the root needs no more of its state, or at the deadline.
  void run();

 private:
  // The phases in their order; guard.cpp draws the transitions.
  enum class Phase : std::uint8_t {
    kSeeking,   // the root has not welcomed this guard yet
    kWithRoot,  // the root decides
    kGivingUp,  // tells the root why, if it can; soon prints it and ends the worker
    kEnding,    // has told the worker to end; kills it if it does not
    kDone,
  };
  // Why and how this guard gives up the root.
  struct Loss {
    std::string why;
    bool reached = false;  // the root had welcomed it
    bool speaker = false;  // this guard prints why, for its node
    std::int64_t speak_at = 0, part_until = 0, patience_ns = 0;
  };

  void step(std::int64_t now);
  void dial(const std::string& address);
  void look_for_address(std::int64_t now);
  void hear_worker();
  void hear_root(const Frame& frame);
  void look_at_worker(std::int64_t now);
  bool worker_dead() const noexcept { return life_ == Liveness::kDead; }
  bool resolver_slow(std::int64_t now) const;
  State state(std::int64_t now) const;
  void report(std::int64_t now, std::uint32_t question);
  std::int64_t tick_ns() const;
  void exchange_clock(std::int64_t now);
  bool is_on_roots_node() const { return options_.rank == options_.local_rank; }

  void change_phase(std::int64_t now);
  Phase next_phase(std::int64_t now);
  Phase give_up(const std::string& why, std::int64_t speak_in_ns, std::int64_t patience_ns);
  Phase end_worker(int code, std::int64_t patience_ns);
  Phase end_for_launcher();
  bool launcher_ended_job(std::int64_t now) const;
  bool is_unreportable(std::int64_t now) const;
  void say_root_never_joined(int launcher);
  void say_how_worker_died() const;
  void hold_name() const;

  GuardOptions options_;
  Page& page_;
  ProcessWatch worker_;
  Channel to_worker_;
  Link link_;
  Rendezvous rendezvous_;
  ClockExchange clock_;
  pid_t launcher_;  // the worker's parent at the start

  // The worker's own state. Its socket may be open for a moment after its death, or closed before.
  bool worker_open_ = true;  // its socket
  bool orphaned_ = false;
  Liveness life_ = Liveness::kRunning;
  std::int64_t changed_ns_ = 0;  // when `life_` changed
  std::int64_t looked_ns_ = 0;   // last look_at_worker()
  State reported_;

  Phase phase_ = Phase::kSeeking;
  std::optional<int> root_end_;  // the exit code in the root's END
  Loss loss_;                    // from kGivingUp on
  std::int64_t kill_at_ = 0;     // from kEnding on

  std::int64_t last_ping_ = 0;
  std::vector<Frame> outbox_;  // for the root once the link is up, in the worker's order
  std::optional<Roster> roster_;
  Fd speaks_for_host_;  // held by the one guard of this host that prints why rank 0 is missing
};

}  // namespace oddrank::control
