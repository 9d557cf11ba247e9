// The guard's loop and state; guard.hpp describes guards.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/clock_exchange.hpp"
#include "control/guard.hpp"
#include "control/link.hpp"
#include "control/process.hpp"

namespace oddrank::control {

// Runs in the guard process. Owns the connections to worker and root; the page is the worker's.
class GuardLoop {
 public:
  GuardLoop(GuardOptions options, Page& page, Fd worker_socket, ProcessWatch worker);
  // Returns when the worker has ended and the root needs no more of its state, or at the deadline.
  void run();

 private:
  void dial(const std::string& address);
  void look_at_rendezvous_file(std::int64_t now);
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
  bool is_on_roots_node() const { return options_.rank == options_.local_rank; }
  void start_fetch(std::int64_t now);
  void read_fetch(std::int64_t now);
  void say_root_never_joined(int launcher);
  void say_how_worker_died() const;

  GuardOptions options_;
  Page& page_;
  ProcessWatch worker_;
  Channel to_worker_;
  Link link_;
  ClockExchange clock_;
  pid_t launcher_;  // the worker's parent at the start
  Fd fetch_;        // output of the process that asks torch's store for the root's address
  bool worker_open_ = true;
  bool worker_dead_ = false;
  bool orphaned_ = false;
  bool was_up_ = false;
  bool ending_ = false;
  Liveness life_ = Liveness::kRunning;
  std::int64_t changed_ns_ = 0;
  std::int64_t last_look_ = 0;
  std::int64_t looked_ns_ = 0;  // last look_at_worker()
  std::int64_t last_ping_ = 0;
  std::int64_t fetch_until_ = 0;
  std::int64_t kill_at_ = 0;
  std::vector<Frame> outbox_;  // for the root once the link is up, in the worker's order
  std::string fetched_;
  State reported_;
  std::optional<Roster> roster_;
  // Set once this guard gives up the root: it prints why and ends the worker soon after.
  struct Loss {
    std::string why;
    std::int64_t speak_at, patience_ns;
    bool speaker;
    std::int64_t part_until;
  };
  std::optional<Loss> loss_;
  Fd speaks_for_host_;  // held by the one guard of this host that prints why rank 0 is missing
};

}  // namespace oddrank::control
