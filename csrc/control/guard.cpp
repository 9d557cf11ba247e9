// The guard's loop: watches its worker, reports its state to the root, ends it.
#include "control/guard.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "control/guard_loop.hpp"
#include "control/partial_view.hpp"
#include "control/rendezvous_file.hpp"
#include "os/clock.hpp"
#include "os/error.hpp"

namespace oddrank::control {
namespace {
constexpr std::int64_t kTickNs = 50 * kMs;
// Longest time without reading /proc while a clock reply is awaited.
constexpr std::int64_t kLongestBlindNs = 5 * kMs;
constexpr std::int64_t kResolverNs = 1'000 * kMs;
// Without a root: time from the launcher's signal until the guard ends the worker.
constexpr std::int64_t kTerminatedNs = 2'000 * kMs;
// The same with a rendezvous file, which may still bring the root's address (launchers kill 30 s
// after their signal). The guard of a dead worker waits this long for the file too.
constexpr std::int64_t kNeighbourNs = 12'000 * kMs;
constexpr std::int64_t kRendezvousFileNs = 40 * kMs;
constexpr std::int64_t kPatienceNs = 700 * kMs;
constexpr std::int64_t kFetchNs = 60'000 * kMs;  // with an import of torch
// A death on this node shows in /proc after a moment.
constexpr std::int64_t kSettleNs = 300 * kMs;
constexpr std::int64_t kLastPatienceNs = 400 * kMs;
// Most time for telling the root why this guard gives it up, and the latest end of that.
constexpr std::int64_t kPartingNs = 3'000 * kMs;
constexpr std::int64_t kHoldNs = 5'000 * kMs;
constexpr std::int64_t kLastPartingNs = 1'300 * kMs;  // after the deadline

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

}  // namespace

GuardLoop::GuardLoop(GuardOptions options, Page& page, Fd worker_socket, ProcessWatch worker)
    : options_(std::move(options)),
      page_(page),
      worker_(std::move(worker)),
      to_worker_(std::move(worker_socket)),
      clock_(options_.rank, options_.world, which_clock()),
      launcher_(worker_.parent()) {
  if (!options_.address.empty()) dial(options_.address);
}

void GuardLoop::dial(const std::string& address) {
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

void GuardLoop::run() {
  while (!done()) {
    std::vector<pollfd> polls;
    if (worker_open_) {
      const short events = to_worker_.wants_write() ? POLLIN | POLLOUT : POLLIN;
      polls.push_back({to_worker_.fd(), events, 0});
    }
    if (!worker_dead_) polls.push_back({worker_.fd(), POLLIN, 0});  // fd -1 is skipped by poll()
    if (fetch_) polls.push_back({fetch_.get(), POLLIN, 0});
    link_.add_polls(polls);
    const timespec tick{0, tick_ns()};
    ::ppoll(polls.data(), polls.size(), &tick, nullptr);
    step(monotonic_ns());
  }
  if (worker_dead_ && !was_up_ && !ending_) say_how_worker_died();
  // The other guards of this host have read it by now, or the root is gone.
  if (link_.has_address()) remove_rendezvous_file(options_.rendezvous_file);
  if (speaks_for_host_) {
    // The launcher tells one rank after the other to end: their guards must find the name taken.
    const std::int64_t left = options_.deadline_ns + kLastPartingNs - monotonic_ns();
    const std::int64_t hold = std::clamp<std::int64_t>(left, 0, kHoldNs);
    const timespec pause{hold / 1'000'000'000, hold % 1'000'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

std::int64_t GuardLoop::tick_ns() const {
  return link_.up() ? std::min(kTickNs, clock_.wait_ns(monotonic_ns())) : kTickNs;
}

void GuardLoop::step(std::int64_t now) {
  hear_worker();
  // Reading /proc delays the clock reply, which would count as round trip: skip it for a moment.
  if (!clock_.awaits_reply() || now - looked_ns_ > kLongestBlindNs) look_at_worker(now);
  look_at_rendezvous_file(now);
  if (worker_dead_ && !link_.has_address()) start_fetch(now);
  read_fetch(now);
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
  check_deadlines(now);
}

void GuardLoop::exchange_clock(std::int64_t now) {
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

void GuardLoop::look_at_rendezvous_file(std::int64_t now) {
  if (link_.has_address() || options_.rendezvous_file.empty()) return;
  if (now - last_look_ < kRendezvousFileNs) return;
  last_look_ = now;
  const std::string address = read_rendezvous_file(options_.rendezvous_file);
  if (address.empty()) return;
  try {
    dial(address);
  } catch (const Error&) {
    // Not an address (another version wrote it): wait for the worker's.
    options_.rendezvous_file.clear();
  }
}

void GuardLoop::hear_worker() {
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

void GuardLoop::hear_root(const Frame& frame) {
  if (frame.kind == FrameKind::kGo) {
    if (worker_open_) to_worker_.send(frame.kind, frame.payload);
  } else if (frame.kind == FrameKind::kEnd) {
    end_worker(Unpacker(frame.payload).i32(), kPatienceNs);
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

void GuardLoop::look_at_worker(std::int64_t now) {
  if (worker_dead_) return;
  looked_ns_ = now;
  // Its socket closes only when the worker dies: read what it wrote before that.
  const Liveness before = life_;
  life_ = worker_.look().life;
  if (life_ != before) changed_ns_ = now;
  if (life_ == Liveness::kDead) {
    hear_worker();
    worker_dead_ = true;
  }
  const bool orphaned = launcher_ > 1 && worker_.parent() != launcher_;
  const bool slow = resolver_slow(now);
  if (life_ != before || orphaned != reported_.orphaned || slow != reported_.resolver_slow ||
      page_.terminated.load() != reported_.terminated) {
    orphaned_ = orphaned;
    report(now, 0);
  }
}

bool GuardLoop::resolver_slow(std::int64_t now) const {
  const std::int64_t started = page_.resolver_started.load();
  const std::int64_t answered = page_.resolver_answered.load();
  return started != 0 && (answered != 0 ? answered : now) - started > kResolverNs;
}

State GuardLoop::state(std::int64_t now) const {
  const ProcessState& process = worker_.last();
  const Progress mark = page_.read();
  State state;
  state.life = life_;
  state.signal = process.signal;
  state.exit_code = process.exit_code;
  const std::int32_t noted = page_.exit_noted.load();
  if (life_ == Liveness::kDead && state.signal == 0 && state.exit_code < 0 && noted != INT_MIN) {
    state.exit_code = noted & 0xff;
  }
  state.wchan = process.wchan;
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

void GuardLoop::report(std::int64_t now, std::uint32_t question) {
  reported_ = state(now);
  reported_.report = question;
  link_.send(FrameKind::kState, pack(reported_));
}

void GuardLoop::end_worker(int code, std::int64_t patience_ns) {
  if (ending_) return;
  ending_ = true;
  kill_at_ = monotonic_ns() + patience_ns;
  if (worker_open_) to_worker_.send(FrameKind::kEnd, Packer().i32(code).take());
}

void GuardLoop::lose_root(const std::string& why, std::int64_t speak_in_ns,
                          std::int64_t patience_ns) {
  if (ending_ || loss_) return;
  // If the root was never reached, its own node is silent: there the root itself prints.
  const bool speaker = (roster_ || options_.local_rank == 0) && (was_up_ || options_.node != 0);
  // Other guards keep their workers four times as long: the speaker still reads them in /proc.
  const std::int64_t wait_ns = speaker ? speak_in_ns : 4 * speak_in_ns;
  const std::int64_t now = monotonic_ns();
  const std::int64_t last = options_.deadline_ns + kLastPartingNs;
  loss_ = Loss{why, now + wait_ns, patience_ns, speaker, std::min(now + kPartingNs, last)};
}

void GuardLoop::speak_and_end() {
  if (loss_->speaker) {
    print_partial_view(options_, roster_, loss_->why, page_.read().stage, life_);
  }
  end_worker(options_.no_verdict, loss_->patience_ns);
}

void GuardLoop::check_deadlines(std::int64_t now) {
  was_up_ = was_up_ || link_.up();
  if (ending_) {
    if (now >= kill_at_ && !worker_dead_) worker_.kill();
    return;
  }
  if (link_.lost()) {
    const std::string what = was_up_ ? "lost the root, " : "never reached the root, ";
    lose_root(what + link_.trouble(), kSettleNs, kPatienceNs);
  }
  if (!was_up_ && now >= options_.join_deadline_ns) {
    lose_root("never reached the root, " + link_.trouble(), kSettleNs, kPatienceNs);
  }
  const std::int64_t terminated = page_.terminated_ns.load();
  // On rank 0's node only rank 0 itself can bring the address.
  const bool may_come = !options_.rendezvous_file.empty() && !is_on_roots_node();
  const std::int64_t patience = may_come ? kNeighbourNs : kTerminatedNs;
  if (!was_up_ && terminated != 0 && now - terminated > patience) {
    if (!link_.has_address()) say_root_never_joined(page_.terminated_by.load());
    end_worker(options_.no_verdict, kPatienceNs);
  }
  if (now >= options_.deadline_ns + 700 * kMs) {
    lose_root("the root gave no verdict by the deadline", 0, kLastPatienceNs);
  }
  if (loss_ && (now >= loss_->speak_at || now >= options_.deadline_ns + 700 * kMs)) speak_and_end();
}

// Whether another worker of this host may still write the rendezvous file: if the launcher lives.
bool GuardLoop::may_still_be_told(std::int64_t now) const {
  return !options_.rendezvous_file.empty() && now - changed_ns_ < kNeighbourNs && launcher_ > 1 &&
         (::kill(launcher_, 0) == 0 || errno == EPERM);  // under srun the parent belongs to root
}

// Starts a process that asks torch's store for the root's address, so that the root learns how this
// worker died. Before a worker on another node has imported torch it does not know that address.
void GuardLoop::start_fetch(std::int64_t now) {
  if (fetch_until_ != 0 || options_.fetcher.empty() || is_on_roots_node()) return;
  fetch_until_ = std::min(now + kFetchNs, options_.join_deadline_ns);
  std::array<int, 2> pipe{};
  if (now >= fetch_until_ || ::pipe2(pipe.data(), O_CLOEXEC) != 0) return;
  fetch_.reset(pipe[0]);
  const Fd output(pipe[1]);
  std::vector<char*> arguments;
  for (std::string& one : options_.fetcher) arguments.push_back(one.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(output.get(), STDOUT_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

void GuardLoop::read_fetch(std::int64_t now) {
  if (!fetch_) return;
  pollfd entry{fetch_.get(), POLLIN, 0};
  bool open = now < fetch_until_;
  while (open && ::poll(&entry, 1, 0) > 0) {
    std::array<char, 4096> text{};
    const ssize_t got = ::read(fetch_.get(), text.data(), text.size());
    open = got > 0 && fetched_.size() < kSmallFrame;
    if (got > 0) fetched_.append(text.data(), static_cast<std::size_t>(got));
  }
  if (open) return;
  fetch_.reset();
  if (link_.has_address() || fetched_.empty()) return;
  try {
    dial(fetched_);
  } catch (const Error&) {
    fetched_.clear();  // not an address: the fetcher failed
  }
}

// For a launcher that ended the job before rank 0 had a guard: then no report is written.
void GuardLoop::say_root_never_joined(int by) {
  if (!is_on_roots_node() || options_.launcher.empty() || by != launcher_) return;
  // Only one guard of the host prints: the first to bind this name.
  speaks_for_host_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int door = speaks_for_host_.get();
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "oddrank-no-rank-0-%u-%d", ::geteuid(),
                launcher_);
  if (door >= 0 && ::bind(door, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    speaks_for_host_.reset();
    return;
  }
  say("rank 0 (" + options_.host + ", local rank 0) never joined: its launcher, " +
      options_.launcher + " (pid " + std::to_string(launcher_) +
      "), ended the job, as it does when a rank dies; without rank 0 there is no report");
}

void GuardLoop::say_how_worker_died() const {
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

bool GuardLoop::done() const {
  // A worker that died before its guard knew the root's address cannot be reported.
  if (loss_ && link_.parting() && monotonic_ns() < loss_->part_until) return false;
  if (worker_dead_ && fetch_) return false;
  if (worker_dead_) {
    return ending_ || (!link_.has_address() && !may_still_be_told(monotonic_ns()));
  }
  return ending_ && monotonic_ns() >= kill_at_ + 300 * kMs;
}

}  // namespace oddrank::control
