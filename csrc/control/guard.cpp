// Starts the guard process and runs its loop: watches its worker, reports its state to the root.
#include "control/guard.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "os/clock.hpp"
#include "os/error.hpp"

namespace oddrank::control {
namespace {
constexpr std::int64_t kTickNs = 50 * kMs;
// Longest time without reading /proc while a clock reply is awaited.
constexpr std::int64_t kLongestBlindNs = 5 * kMs;
constexpr std::int64_t kResolverNs = 1'000 * kMs;

}  // namespace

Guard::Guard(GuardOptions options, Page& page, Fd worker_socket, ProcessWatch worker)
    : options_(std::move(options)),
      page_(page),
      worker_(std::move(worker)),
      to_worker_(std::move(worker_socket)),
      rendezvous_(options_.rendezvous_file, options_.fetcher),
      clock_(options_.rank, options_.world, which_clock()),
      launcher_(worker_.parent()) {
  if (!options_.address.empty()) dial(options_.address);
}

void Guard::dial(const std::string& address) {
  Hello hello;
  hello.rank = options_.rank;
  hello.world = options_.world;
  hello.local_rank = options_.local_rank;
  hello.local_world = options_.local_world;
  hello.node = options_.node;
  hello.launcher_pid = launcher_;
  hello.launcher = options_.launcher;
  hello.host = options_.host.substr(0, 200);
  hello.pid = worker_.pid();
  hello.start_time = worker_.start_time();
  hello.remaining_ms =
      static_cast<std::uint32_t>(Deadline::at_ns(options_.deadline_ns).remaining_ms());
  link_.dial(RootAddress::parse(address), std::move(hello),
             options_.published || options_.address.empty());
}

void Guard::run() {
  while (phase_ != Phase::kDone) {
    std::vector<pollfd> polls;
    if (worker_open_) {
      const short events = to_worker_.wants_write() ? POLLIN | POLLOUT : POLLIN;
      polls.push_back({to_worker_.fd(), events, 0});
    }
    // poll() skips fd -1.
    if (!worker_dead()) polls.push_back({worker_.fd(), POLLIN, 0});
    polls.push_back({rendezvous_.fd(), POLLIN, 0});
    link_.add_polls(polls);
    const timespec tick{0, tick_ns()};
    ::ppoll(polls.data(), polls.size(), &tick, nullptr);
    step(monotonic_ns());
  }
  // The other guards of this host have read it by now, or the root is gone.
  if (link_.has_address()) rendezvous_.remove_file();
  if (speaks_for_host_) hold_name();
}

std::int64_t Guard::tick_ns() const {
  return link_.up() ? std::min(kTickNs, clock_.wait_ns(monotonic_ns())) : kTickNs;
}

void Guard::step(std::int64_t now) {
  hear_worker();
  // Reading /proc delays the clock reply, which would count as round trip: skip it for a moment.
  if (!clock_.awaits_reply() || now - looked_ns_ > kLongestBlindNs) look_at_worker(now);
  look_for_address(now);
  link_.tick(now);
  const bool was_up = link_.up();
  for (const Frame& frame : link_.work(now)) hear_root(frame);
  if (link_.up()) {
    if (!was_up) report(now, 0);
    for (const Frame& frame : outbox_) link_.send(frame.kind, frame.payload);
    outbox_.clear();
    if (now - last_ping_ >= link_.welcome().heartbeat_ms * kMs) {
      last_ping_ = now;
      if (page_.read().progress != reported_.progress) report(now, 0);
      link_.send(FrameKind::kPing, {});
    }
  }
  exchange_clock(monotonic_ns());  // a reply may have made the next exchange due
  change_phase(now);
}

void Guard::exchange_clock(std::int64_t now) {
  if (link_.up() && clock_.due(now)) {
    link_.send(FrameKind::kAskClock, Packer().u32(clock_.begin(monotonic_ns())).take());
  }
  if (auto answer = clock_.answer(now, link_.lost())) {
    if (!answer->trouble.empty()) {
      answer->trouble = link_.up() ? "the root is silent" : link_.trouble();
    }
    if (worker_open_) to_worker_.send(FrameKind::kClock, pack(*answer));
  }
}

// Looks where the worker does not bring the root's address. Once it is dead, runs the fetcher, so
// that the root learns how it died: before a worker on another node has imported torch it does not
// know that address.
void Guard::look_for_address(std::int64_t now) {
  if (link_.has_address()) {
    rendezvous_.take_fetched(now);
    return;
  }
  if (const std::string address = rendezvous_.look(now); !address.empty()) {
    try {
      dial(address);
      return;
    } catch (const Error&) {
      rendezvous_.forget_file();  // another version wrote it: wait for the worker's
    }
  }
  if (worker_dead() && !is_on_roots_node()) rendezvous_.start_fetch(now, options_.join_deadline_ns);
  if (const std::string address = rendezvous_.take_fetched(now); !address.empty()) {
    try {
      dial(address);
    } catch (const Error&) {
      return;  // the fetcher failed
    }
  }
}

void Guard::hear_worker() {
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

void Guard::hear_root(const Frame& frame) {
  if (frame.kind == FrameKind::kGo) {
    if (worker_open_) to_worker_.send(frame.kind, frame.payload);
  } else if (frame.kind == FrameKind::kEnd) {
    root_end_ = Unpacker(frame.payload).i32();
  } else if (frame.kind == FrameKind::kReport) {
    look_at_worker(monotonic_ns());
    report(monotonic_ns(), Unpacker(frame.payload).u32());
  } else if (frame.kind == FrameKind::kRoster) {
    roster_ = unpack<Roster>(frame.payload);
  } else if (frame.kind == FrameKind::kClock) {
    const std::int64_t now = monotonic_ns();  // before unpacking: it ends the round trip
    if (const auto reading = unpack<ClockReading>(frame.payload)) clock_.hear(*reading, now);
  }
}

void Guard::look_at_worker(std::int64_t now) {
  if (worker_dead()) return;
  looked_ns_ = now;
  // Its socket closes only when the worker dies: read what it wrote before that.
  const Liveness before = life_;
  life_ = worker_.look().life;
  if (life_ != before) changed_ns_ = now;
  if (worker_dead()) hear_worker();
  const bool orphaned = launcher_ > 1 && worker_.parent() != launcher_;
  const bool slow = resolver_slow(now);
  if (life_ != before || orphaned != reported_.orphaned || slow != reported_.resolver_slow ||
      page_.terminated.load() != reported_.terminated) {
    orphaned_ = orphaned;
    report(now, 0);
  }
}

bool Guard::resolver_slow(std::int64_t now) const {
  const std::int64_t started = page_.resolver_started.load();
  const std::int64_t answered = page_.resolver_answered.load();
  return started != 0 && (answered != 0 ? answered : now) - started > kResolverNs;
}

State Guard::state(std::int64_t now) const {
  const Progress mark = page_.read();
  State state;
  static_cast<ProcessState&>(state) = worker_.last();
  state.life = life_;
  const std::int32_t noted = page_.exit_noted.load();
  if (worker_dead() && state.signal == 0 && state.exit_code < 0 && noted != INT_MIN) {
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
  state.orphaned = orphaned_;
  state.resolver_slow = resolver_slow(now);
  state.fault_age_ns = life_ == Liveness::kRunning ? -1 : now - changed_ns_;
  return state;
}

void Guard::report(std::int64_t now, std::uint32_t question) {
  reported_ = state(now);
  reported_.report = question;
  link_.send(FrameKind::kState, pack(reported_));
}

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
