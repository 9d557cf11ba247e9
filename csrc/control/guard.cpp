// Starts the guard process and runs its loop: watches its worker, reports its state to the root.
// Then its phases: when it gives up the root, when it ends its worker, and what it prints then.
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/clock_exchange.hpp"
#include "control/link.hpp"
#include "control/page.hpp"
#include "control/process.hpp"
#include "control/rendezvous.hpp"
#include "control/worker.hpp"
#include "os/clock.hpp"
#include "os/encoding.hpp"
#include "os/error.hpp"

namespace oddrank::control {
namespace {
constexpr std::int64_t kTickNs = 50 * kMs;
// Longest time without reading /proc while a clock reply is awaited.
constexpr std::int64_t kLongestBlindNs = 5 * kMs;
constexpr std::int64_t kResolverNs = 1'000 * kMs;

//   +---------+  welcome   +-----------+  the root's END
//   | seeking |----------->| with root |-------------------------+
//   +---------+            +-----------+                         |
//    | | |             welcome ^ | link lost; or no verdict      |
//    | | | no root by the      | | 0.7 s after the deadline      |
//    | | | join deadline       | v                               v
//    | | |                 +-----------+  0.3 or 1.2 s      +--------+
//    | | +---------------->| giving up |------------------->| ending |
//    | |                   +-----------+  (partial view)    +--------+
//    | |                                                      ^    |
//    | +--- END, or 2 or 12 s since the launcher's signal ----+    | worker dead, or
//    |                                                             | killed 0.3 s ago
//    |      worker dead, and no address can come    +------+       |
//    +--------------------------------------------->| done |<------+
//                                                   +------+
//
// "Giving up" without an earlier welcome has the other exits of "seeking", too.
// Seeking: time from the launcher's signal until the guard ends the worker.
constexpr std::int64_t kLauncherNs = 2'000 * kMs;
// The same with a rendezvous file, which may still bring the root's address (launchers kill 30 s
// after their signal). The guard of a dead worker waits this long for the file too.
constexpr std::int64_t kNeighbourNs = 12'000 * kMs;
// From the deadline on: the root's verdict is late.
constexpr std::int64_t kVerdictNs = 700 * kMs;
// Giving up: time until the speaker speaks. A death on its node shows in /proc after a moment. The
// other guards keep their workers four times as long: the speaker still reads them in /proc.
constexpr std::int64_t kSpeakNs = 300 * kMs;
// Most time for telling the root why this guard gives it up, and its end after the deadline.
constexpr std::int64_t kPartingNs = 3'000 * kMs;
constexpr std::int64_t kLastPartingNs = 1'300 * kMs;
// Ending: time for the worker to end itself, also after the deadline; then after its kill.
constexpr std::int64_t kPatienceNs = 700 * kMs;
constexpr std::int64_t kLastPatienceNs = 400 * kMs;
constexpr std::int64_t kKilledNs = 300 * kMs;
// Done: the speaking guard keeps the host's name this long. The launcher signals ranks one by one,
// and later guards must find the name in use.
constexpr std::int64_t kHoldNs = 5'000 * kMs;

// glibc's sigabbrev_np() came with 2.32; musl has none.
std::string signal_name(int number) {
  constexpr std::pair<int, const char*> kNames[] = {
      {SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},
      {SIGILL, "SIGILL"},   {SIGFPE, "SIGFPE"},   {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};
  for (const auto& [known, name] : kNames) {
    if (known == number) return name;
  }
  return "signal " + std::to_string(number);
}

Liveness liveness_of(const Roster::Process& process) {
  const ProcStat stat = read_stat(process.pid);
  if (stat.state == 0 || stat.start_time != process.start_time) return Liveness::kDead;
  if (stat.is_zombie()) return Liveness::kDead;
  if (stat.is_stopped()) return Liveness::kStopped;
  return stat.state == 'D' ? Liveness::kUninterruptible : Liveness::kRunning;
}

// Replaces control characters: values may come from other hosts.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

// Writes "oddrank: " and the text as one line to stderr, without control characters.
void say(const std::string& text) {
  const std::string line = printable("oddrank: " + text) + "\n";
  // One write() keeps lines of several nodes on one terminal whole. Ignore its failure.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

// Writes one line to stderr: why, in which stage, and the states of this node's ranks, read from
// /proc by the roster's pids; `own` is this guard's worker.
void print_partial_view(const GuardOptions& options, const std::optional<Roster>& roster,
                        const std::string& why, const std::string& stage, Liveness own) {
  std::map<Liveness, std::vector<std::int32_t>> ranks;
  if (roster) {
    for (const auto& process : roster->processes) {
      const bool is_own = process.rank == options.rank;
      ranks[is_own ? own : liveness_of(process)].push_back(process.rank);
    }
  } else {
    ranks[own].push_back(options.rank);
  }
  std::string line = "partial view from " + options.host + ": " + why;
  if (roster) line += " (rank 0 on " + roster->root_host + ")";
  line += stage.empty() ? "" : ", in stage " + stage;
  std::string states;
  for (auto& [life, who] : ranks) {
    std::sort(who.begin(), who.end());
    states += (states.empty() ? "" : ", ") + folded(who) + " " + name_of(life);
  }
  say(line + "; ranks here: " + states);
}

// Runs in the guard process. Owns the connections to worker and root; the page is the worker's.
class Guard final : GuardBase {
 public:
  Guard(const GuardOptions& options, Page& page, Fd worker_socket, ProcessWatch worker)
      : GuardBase(options, std::move(worker), kOwnPauseNs),
        options_(options),
        page_(page),
        to_worker_(std::move(worker_socket)),
        clock_(options_.rank, options_.world, which_clock()) {
    if (!options_.address.empty() && !dial(options_.address)) throw Error("no root address");
  }
  // Returns when the worker has ended and the root needs no more of its state, or at the deadline.
  void run() {
    while (phase_ != Phase::kDone) {
      std::vector<pollfd> polls;
      if (worker_open_) {
        const short events = to_worker_.wants_write() ? POLLIN | POLLOUT : POLLIN;
        polls.push_back({to_worker_.fd(), events, 0});
      }
      sleep(tick_ns(), polls);
      step(monotonic_ns());
    }
    // The other guards of this host have read it by now, or the root is gone.
    if (link_.has_address() && has_file()) remove_rendezvous_file(identity_.rendezvous_file);
    if (speaks_for_host_) hold_name();
  }

 private:
  // The phases in their order, drawn above
  enum class Phase : std::uint8_t {
    kSeeking,   // the root has not welcomed this guard yet
    kWithRoot,  // the root decides
    kGivingUp,  // tells the root why, if it can; soon prints it and ends the worker
    kEnding,    // has asked the worker to end; kills it if it does not
    kDone,
  };
  // Why and how this guard gives up the root.
  struct Loss {
    std::string why;
    bool reached = false;  // the root had welcomed it
    bool speaker = false;  // this guard prints why, for its node
    std::int64_t speak_at = 0, part_until = 0, patience_ns = 0;
  };

  void step(std::int64_t now) {
    hear_worker();
    // Reading /proc delays the clock reply, which would count as round trip: skip it for a moment.
    if (!clock_.awaits_reply() || now - looked_ns_ > kLongestBlindNs) look(now);
    // Runs the fetcher once the worker is dead, so that the root learns how it died: before a
    // worker on another node has imported torch it does not know that address.
    seek(now, is_dead() && !is_on_roots_node() ? options_.join_deadline_ns : 0);
    link_.tick(now);
    const bool was_up = link_.up();
    for (const Frame& frame : link_.work(now)) hear_root(frame);
    if (link_.up()) {
      if (!was_up) report(now, 0);
      for (const Frame& frame : outbox_) link_.send(frame.kind, frame.payload);
      outbox_.clear();
      if (ping(now) && page_.read().progress != reported_.progress) report(now, 0);
    }
    exchange_clock(monotonic_ns());  // a reply may have made the next exchange due
    change_phase(now);
  }
  bool dial(const std::string& address) override {
    const auto remaining_ms =
        static_cast<std::uint32_t>(Deadline::at_ns(options_.deadline_ns).remaining_ms());
    Hello hello = identity_.hello(worker_, launcher_, remaining_ms);
    return link_.dial(address, std::move(hello), options_.published || options_.address.empty());
  }
  void hear_worker() {
    if (!worker_open_) return;
    worker_open_ = to_worker_.flush() && to_worker_.receive();
    while (auto frame = to_worker_.next()) {
      if (frame->kind == FrameKind::kAddress) {
        if (!link_.has_address()) dial(frame->payload);
      } else if (frame->kind == FrameKind::kResult || frame->kind == FrameKind::kFail) {
        // The root takes `waiting` from the state just before a result or failure.
        outbox_.push_back({FrameKind::kState, pack(state(monotonic_ns()))});
        outbox_.push_back(std::move(*frame));
      } else if (frame->kind == FrameKind::kAskClock) {
        const auto question = unpack<ClockQuestion>(frame->payload);
        if (question) clock_.ask(*question, monotonic_ns());
      }
    }
  }
  void hear_root(const Frame& frame) {
    if (frame.kind == FrameKind::kGo) {
      if (worker_open_) to_worker_.send(frame.kind, frame.payload);
    } else if (frame.kind == FrameKind::kEnd) {
      root_end_ = Unpacker(frame.payload).next<std::int32_t>();
    } else if (frame.kind == FrameKind::kReport) {
      look(monotonic_ns());
      report(monotonic_ns(), Unpacker(frame.payload).next<std::uint32_t>());
    } else if (frame.kind == FrameKind::kRoster) {
      roster_ = unpack<Roster>(frame.payload);
    } else if (frame.kind == FrameKind::kClock) {
      const std::int64_t now = monotonic_ns();  // before unpacking: it ends the round trip
      if (const auto reading = unpack<ClockReading>(frame.payload)) clock_.hear(*reading, now);
    }
  }
  void look(std::int64_t now) {
    if (is_dead()) return;
    const bool changed = look_at_worker(now);
    // Its socket closes only when the worker dies: read what it wrote before that.
    if (is_dead()) hear_worker();
    if (changed || resolver_slow(now) != reported_.resolver_slow ||
        page_.terminated.load() != reported_.terminated) {
      report(now, 0);
    }
  }
  bool resolver_slow(std::int64_t now) const {
    const std::int64_t started = page_.resolver_started.load();
    const std::int64_t answered = page_.resolver_answered.load();
    return started != 0 && (answered != 0 ? answered : now) - started > kResolverNs;
  }
  State state(std::int64_t now) const override {
    const Progress mark = page_.read();
    State state = process_state(now);
    const std::int32_t noted = page_.exit_noted.load();
    if (is_dead() && state.signal == 0 && state.exit_code < 0 && noted != INT_MIN) {
      state.exit_code = noted & 0xff;
    }
    state.stage = mark.stage;
    state.step = mark.step;
    state.stage_number = mark.stage_number;
    state.progress = mark.progress;
    state.waiting = mark.waiting != 0;
    state.published = mark.published != 0;
    state.terminated = page_.terminated.load();
    state.terminated_by = page_.terminated_by.load();
    state.resolver_slow = resolver_slow(now);
    return state;
  }
  std::int64_t tick_ns() const {
    return link_.up() ? std::min(kTickNs, clock_.wait_ns(monotonic_ns())) : kTickNs;
  }
  void exchange_clock(std::int64_t now) {
    if (link_.up() && clock_.due(now)) {
      link_.send(FrameKind::kAskClock, packed(clock_.begin(monotonic_ns())));
    }
    if (auto answer = clock_.answer(now, link_.lost())) {
      if (!answer->trouble.empty()) {
        answer->trouble = link_.up() ? "the root is silent" : link_.trouble();
      }
      if (worker_open_) to_worker_.send(FrameKind::kClock, pack(*answer));
    }
  }
  bool is_on_roots_node() const { return options_.rank == options_.local_rank; }

  void change_phase(std::int64_t now) {
    for (Phase before = Phase::kDone; before != phase_;) {
      before = phase_;
      phase_ = next_phase(now);
    }
  }
  // Names every transition. It alone calls the functions that begin a phase; these return it.
  Phase next_phase(std::int64_t now) {
    const bool is_late = now >= options_.deadline_ns + kVerdictNs;
    switch (phase_) {
      case Phase::kSeeking:
        if (root_end_) return end_worker(*root_end_, kPatienceNs);  // it refused the hello
        if (link_.up()) return Phase::kWithRoot;
        if (launcher_ended_job(now)) return end_for_launcher();
        if (link_.lost() || now >= options_.join_deadline_ns) {
          return give_up("never reached the root, " + link_.trouble(), kSpeakNs, kPatienceNs);
        }
        if (is_late) return give_up("the root gave no verdict by the deadline", 0, kLastPatienceNs);
        break;
      case Phase::kWithRoot:
        if (root_end_) return end_worker(*root_end_, kPatienceNs);
        if (link_.lost()) {
          return give_up("lost the root, " + link_.trouble(), kSpeakNs, kPatienceNs);
        }
        if (is_late) return give_up("the root gave no verdict by the deadline", 0, kLastPatienceNs);
        return phase_;
      case Phase::kGivingUp:
        if (root_end_) return end_worker(*root_end_, kPatienceNs);
        if (!loss_.reached && link_.up()) return Phase::kWithRoot;  // just after the join deadline
        if (!loss_.reached && launcher_ended_job(now)) return end_for_launcher();
        if (now >= loss_.speak_at || is_late) {
          if (loss_.speaker) {
            print_partial_view(options_, roster_, loss_.why, page_.read().stage,
                               worker_.last().life);
          }
          return end_worker(options_.no_verdict, loss_.patience_ns);
        }
        break;
      case Phase::kEnding: {
        if (now >= kill_at_ && !is_dead()) worker_.kill();
        const bool is_parting = link_.parting() && now < loss_.part_until;
        const bool ended = is_dead() ? !fetch_.running() : now >= kill_at_ + kKilledNs;
        return ended && !is_parting ? Phase::kDone : phase_;
      }
      case Phase::kDone:
        return phase_;
    }
    if (!is_unreportable(now)) return phase_;
    say_how_worker_died();
    return Phase::kDone;
  }
  Phase give_up(const std::string& why, std::int64_t speak_in_ns, std::int64_t patience_ns) {
    loss_.why = why;
    loss_.reached = phase_ == Phase::kWithRoot;
    // If the root was never reached, its own node is silent: there the root itself prints.
    loss_.speaker = (roster_ || options_.local_rank == 0) && (loss_.reached || options_.node != 0);
    const std::int64_t now = monotonic_ns();
    loss_.speak_at = now + (loss_.speaker ? speak_in_ns : 4 * speak_in_ns);
    loss_.part_until = std::min(now + kPartingNs, options_.deadline_ns + kLastPartingNs);
    loss_.patience_ns = patience_ns;
    return Phase::kGivingUp;
  }
  Phase end_worker(int code, std::int64_t patience_ns) {
    kill_at_ = monotonic_ns() + patience_ns;
    if (worker_open_) to_worker_.send(FrameKind::kEnd, packed(code));
    return Phase::kEnding;
  }
  Phase end_for_launcher() {
    if (!link_.has_address()) say_root_never_joined(page_.terminated_by.load());
    return end_worker(options_.no_verdict, kPatienceNs);
  }
  // Whether the launcher's signal came so long ago that no root is to be expected.
  bool launcher_ended_job(std::int64_t now) const {
    const std::int64_t terminated = page_.terminated_ns.load();
    // On rank 0's node only rank 0 itself can bring the address.
    const bool may_come = has_file() && !is_on_roots_node();
    return terminated != 0 && now - terminated > (may_come ? kNeighbourNs : kLauncherNs);
  }
  // Whether the worker died before its guard knew the root's address, and no process will bring it:
  // no fetcher runs, and no other worker of this host can write the rendezvous file, for which the
  // launcher must live.
  bool is_unreportable(std::int64_t now) const {
    if (!is_dead() || fetch_.running() || link_.has_address()) return false;
    const bool may_be_told = has_file() && now - changed_ns_ < kNeighbourNs && launcher_ > 1 &&
                             (::kill(launcher_, 0) == 0 || errno == EPERM);
    return !may_be_told;  // EPERM: under srun the parent belongs to root
  }
  // For a launcher that ended the job before rank 0 had a guard: then no report is written.
  void say_root_never_joined(int by) {
    if (!is_on_roots_node() || options_.launcher.empty() || by != launcher_) return;
    // Only one guard of the host prints: the first to bind this name.
    speaks_for_host_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const int door = speaks_for_host_.get();
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "oddrank-no-rank-0-%u-%d",
                  ::geteuid(), launcher_);
    if (door >= 0 && ::bind(door, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
      speaks_for_host_.reset();
      return;
    }
    say("rank 0 (" + options_.host + ", local rank 0) never joined: its launcher, " +
        options_.launcher + " (pid " + std::to_string(launcher_) +
        "), ended the job, as it does when a rank dies; without rank 0 there is no report");
  }
  void say_how_worker_died() const {
    if (page_.terminated.load() != 0) return;  // its launcher ended it: another rank is the cause
    const State last = state(monotonic_ns());
    std::string how = "ended";
    if (last.signal != 0) how = "was killed by " + signal_name(last.signal);
    if (last.signal == 0 && last.exit_code >= 0) {
      how = "exited with code " + std::to_string(last.exit_code);
    }
    say("rank " + std::to_string(options_.rank) + " (" + options_.host + ", local rank " +
        std::to_string(options_.local_rank) + ") " + how + " before it reached rank 0");
  }
  void hold_name() const {
    const std::int64_t left = options_.deadline_ns + kLastPartingNs - monotonic_ns();
    const std::int64_t hold = std::clamp<std::int64_t>(left, 0, kHoldNs);
    const timespec pause{hold / 1'000'000'000, hold % 1'000'000'000};
    ::nanosleep(&pause, nullptr);
  }

  GuardOptions options_;
  Page& page_;
  Channel to_worker_;
  ClockExchange clock_;
  // The worker's socket. It may be open for a moment after its death, or closed before.
  bool worker_open_ = true;
  Phase phase_ = Phase::kSeeking;
  std::optional<int> root_end_;  // the exit code in the root's END
  Loss loss_;                    // from kGivingUp on
  std::int64_t kill_at_ = 0;     // from kEnding on

  std::vector<Frame> outbox_;  // for the root once the link is up, in the worker's order
  std::optional<Roster> roster_;
  Fd speaks_for_host_;  // held by the one guard of this host that prints why rank 0 is missing
};

}  // namespace

pid_t fork_guard(const GuardOptions& options, Page& page, int guard_socket) {
  // Before the fork: this worker may be dead and reaped before its guard runs.
  ProcessWatch worker(::getpid());
  const pid_t child = ::fork();
  if (child < 0) throw_errno("fork the guard of rank " + std::to_string(options.rank));
  if (child > 0) return child;
  try {
    ::setsid();
    close_descriptors_but(guard_socket, worker.fd());
    reset_signals();
    ::prctl(PR_SET_NAME, "oddrank-guard");
    kill_this_process_at(options.deadline_ns + 1'500'000'000);
    Guard(options, page, Fd(guard_socket), std::move(worker)).run();
  } catch (const std::exception& error) {
    const std::string line = std::string("oddrank: guard failed: ") + error.what() + "\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(2);
  }
  ::_exit(0);  // never return to Python, run no exit handler of the worker
}

}  // namespace oddrank::control
