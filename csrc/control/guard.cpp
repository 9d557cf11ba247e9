// The guard's loop: watches its worker, speaks for it, ends it.
#include "control/guard.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "control/guard_loop.hpp"
#include "control/meeting_point.hpp"
#include "control/partial_view.hpp"

namespace oddrank::control {
namespace {
constexpr std::int64_t kTickNs = 50 * kMs;
// While the root's reply about the clock is on its way.
constexpr std::int64_t kLongestBlindNs = 5 * kMs;
constexpr std::int64_t kResolverNs = 1'000 * kMs;
// Without a root, a worker that its launcher has told to end may do so soon.
constexpr std::int64_t kTerminatedNs = 2'000 * kMs;
// With a meeting point a neighbour may still bring the address: to a worker that its launcher has
// told to end (and will kill 30 s later), and to the guard of one that died.
constexpr std::int64_t kNeighbourNs = 12'000 * kMs;
constexpr std::int64_t kMeetingPointNs = 40 * kMs;
constexpr std::int64_t kPatienceNs = 700 * kMs;
// What has just happened on this node shows in /proc after a moment.
constexpr std::int64_t kSettleNs = 300 * kMs;
constexpr std::int64_t kLastPatienceNs = 400 * kMs;
}  // namespace

GuardLoop::GuardLoop(GuardOptions options, Page& page, Fd worker_socket, ProcessWatch worker)
    : options_(std::move(options)),
      page_(page),
      worker_(std::move(worker)),
      launcher_(worker_.parent()),
      to_worker_(std::move(worker_socket)),
      clock_(options_.rank, options_.world, which_clock()) {
  if (!options_.address.empty()) dial(options_.address);
}

void GuardLoop::dial(const std::string& address) {
  Hello hello;
  hello.rank = options_.rank;
  hello.world = options_.world;
  hello.local_rank = options_.local_rank;
  hello.local_world = options_.local_world;
  hello.node = options_.node;
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
    link_.add_polls(polls);
    const timespec tick{0, tick_ns()};
    ::ppoll(polls.data(), polls.size(), &tick, nullptr);
    step(monotonic_ns());
  }
  // All guards of the host have it by now, or it leads nowhere any more.
  if (link_.has_address()) remove_meeting_point(options_.meeting_point);
}

std::int64_t GuardLoop::tick_ns() const {
  return link_.up() ? std::min(kTickNs, clock_.wait_ns(monotonic_ns())) : kTickNs;
}

void GuardLoop::step(std::int64_t now) {
  hear_worker();
  // What this turn takes counts as round trip.
  if (!clock_.awaits_reply() || now - looked_ns_ > kLongestBlindNs) look_at_worker(now);
  look_at_meeting_point(now);
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
      link_.send(Kind::kPing, {});
    }
  }
  exchange_clock(monotonic_ns());  // a reply may just have made the next one due
  check_deadlines(now);
}

void GuardLoop::exchange_clock(std::int64_t now) {
  if (link_.up() && clock_.due(now)) {
    link_.send(Kind::kAskClock, Packer().u32(clock_.begin(monotonic_ns())).take());
  }
  if (auto answer = clock_.answer(now, link_.lost())) {
    if (!answer->trouble.empty()) {
      answer->trouble = link_.up() ? "the root is silent" : link_.trouble();
    }
    if (worker_open_) to_worker_.send(Kind::kClock, answer->pack());
  }
}

void GuardLoop::look_at_meeting_point(std::int64_t now) {
  if (link_.has_address() || options_.meeting_point.empty()) return;
  if (now - last_look_ < kMeetingPointNs) return;
  last_look_ = now;
  const std::string address = read_meeting_point(options_.meeting_point);
  if (address.empty()) return;
  try {
    dial(address);
  } catch (const Error&) {
    // Not an address: written by another version. The worker will bring one.
    options_.meeting_point.clear();
  }
}

void GuardLoop::hear_worker() {
  if (!worker_open_) return;
  worker_open_ = to_worker_.flush() && to_worker_.receive();
  while (auto frame = to_worker_.next()) {
    if (frame->kind == Kind::kAddress) {
      if (!link_.has_address()) dial(frame->payload);
    } else if (frame->kind == Kind::kResult || frame->kind == Kind::kFail) {
      // The root reads "was it waiting" from the state that comes just before.
      outbox_.push_back({Kind::kState, state(monotonic_ns()).pack()});
      outbox_.push_back(std::move(*frame));
    } else if (frame->kind == Kind::kAskClock) {
      const auto question = ClockQuestion::unpack(frame->payload);
      if (question) clock_.ask(*question, monotonic_ns());
    }
  }
}

void GuardLoop::hear_root(const Frame& frame) {
  if (frame.kind == Kind::kGo) {
    if (worker_open_) to_worker_.send(frame.kind, frame.payload);
  } else if (frame.kind == Kind::kEnd) {
    end_worker(Unpacker(frame.payload).i32(), kPatienceNs);
  } else if (frame.kind == Kind::kReport) {
    look_at_worker(monotonic_ns());
    report(monotonic_ns(), Unpacker(frame.payload).u32());
  } else if (frame.kind == Kind::kRoster) {
    roster_ = Roster::unpack(frame.payload);
  } else if (frame.kind == Kind::kClock) {
    const std::int64_t now = monotonic_ns();  // not after what comes next
    if (const auto reading = ClockReading::unpack(frame.payload)) clock_.hear(*reading, now);
  }
}

void GuardLoop::look_at_worker(std::int64_t now) {
  if (worker_dead_) return;
  looked_ns_ = now;
  // The worker closes its end by dying only: what it wrote before has been read above.
  const Life before = life_;
  life_ = worker_.look().life;
  if (life_ != before) changed_ns_ = now;
  if (life_ == Life::kDead) {
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
  const Mark mark = page_.read();
  State state;
  state.life = life_;
  state.signal = process.signal;
  state.exit_code = process.exit_code;
  const std::int32_t noted = page_.exit_noted.load();
  if (life_ == Life::kDead && state.signal == 0 && state.exit_code < 0 && noted != INT_MIN) {
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
  state.fault_age_ns = life_ == Life::kRunning ? -1 : now - changed_ns_;
  return state;
}

void GuardLoop::report(std::int64_t now, std::uint32_t question) {
  reported_ = state(now);
  reported_.report = question;
  link_.send(Kind::kState, reported_.pack());
}

void GuardLoop::end_worker(int code, std::int64_t patience_ns) {
  if (ending_) return;
  ending_ = true;
  kill_at_ = monotonic_ns() + patience_ns;
  if (worker_open_) to_worker_.send(Kind::kEnd, Packer().i32(code).take());
}

void GuardLoop::lose_root(const std::string& why, std::int64_t speak_in_ns,
                          std::int64_t patience_ns) {
  if (ending_ || loss_) return;
  // Where the root was never reached, its own node has the root's own words.
  const bool speaker = (roster_ || options_.local_rank == 0) && (was_up_ || options_.node != 0);
  // The others' workers stay until the speaker has looked at them, beat by beat later than here.
  const std::int64_t wait_ns = speaker ? speak_in_ns : 4 * speak_in_ns;
  loss_ = Loss{why, monotonic_ns() + wait_ns, patience_ns, speaker};
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
  const std::int64_t patience = options_.meeting_point.empty() ? kTerminatedNs : kNeighbourNs;
  if (!was_up_ && terminated != 0 && now - terminated > patience) {
    end_worker(options_.no_verdict, kPatienceNs);
  }
  if (now >= options_.deadline_ns + 700 * kMs) {
    lose_root("the root gave no verdict by the deadline", 0, kLastPatienceNs);
  }
  if (loss_ && (now >= loss_->speak_at || now >= options_.deadline_ns + 700 * kMs)) speak_and_end();
}

// Whether a neighbour may bring the address after this worker died: while their launcher lives.
bool GuardLoop::may_still_be_told(std::int64_t now) const {
  return !options_.meeting_point.empty() && now - changed_ns_ < kNeighbourNs && launcher_ > 1 &&
         (::kill(launcher_, 0) == 0 || errno == EPERM);  // srun's parent of a rank is root's
}

bool GuardLoop::done() const {
  // A worker that died before its guard knew of a root has nobody left to be reported to.
  if (worker_dead_) {
    return ending_ || (!link_.has_address() && !may_still_be_told(monotonic_ns()));
  }
  return ending_ && monotonic_ns() >= kill_at_ + 300 * kMs;
}

}  // namespace oddrank::control
