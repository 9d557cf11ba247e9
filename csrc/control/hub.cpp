// The hub's public methods, called outside its thread.
#include "control/hub.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "control/clock_exchange.hpp"
#include "os/clock.hpp"
#include "os/error.hpp"

namespace oddrank::control {
namespace {
constexpr std::int64_t kLingerNs = 500 * kMs;
constexpr rlim_t kSpareFiles = 32;  // for Python, reports and libraries of this process

// Returns the guards' heartbeat interval: the root receives at most 5,000 heartbeats a second.
std::uint32_t heartbeat_of(int world) {
  return static_cast<std::uint32_t>(std::max(250, world / 5));
}

std::uint32_t silence_of(const HubOptions& options, std::uint32_t heartbeat_ms) {
  const std::int64_t left = (options.deadline_ns - monotonic_ns()) / kMs;
  const auto wanted = static_cast<std::uint32_t>(std::clamp<std::int64_t>(left / 4, 2000, 5000));
  return std::max(wanted, heartbeat_ms * 5 / 2);
}

rlim_t raise_open_files() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

auto time_point(std::int64_t ns) {
  return std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns - monotonic_ns());
}
}  // namespace

Hub::Hub(Fd listener, HubOptions options)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      clock_(which_clock()),
      fd_of_rank_(static_cast<std::size_t>(options_.world), -1),
      ranks_(options_.world, 0) {
  if (!epoll_ || !wake_) throw_errno("epoll_create1 or eventfd for the root");
  welcome_.heartbeat_ms =
      options_.heartbeat_ms != 0 ? options_.heartbeat_ms : heartbeat_of(options_.world);
  welcome_.silence_ms =
      options_.silence_ms != 0 ? options_.silence_ms : silence_of(options_, welcome_.heartbeat_ms);
  ranks_ = Ranks(options_.world, welcome_.silence_ms * kMs);
  const rlim_t files = raise_open_files();
  most_connections_ =
      static_cast<std::size_t>(files > 2 * kSpareFiles ? files - kSpareFiles : kSpareFiles);
  if (most_connections_ < static_cast<std::size_t>(options_.world)) {
    limits_ = notes_.limits = "the open-file limit on " + options_.host + " (" +
                              std::to_string(files) + ", hard) lets at most " +
                              std::to_string(most_connections_) + " of " +
                              std::to_string(options_.world) +
                              " ranks reach the root: raise it (ulimit -Hn, LimitNOFILE)";
  }
  for (const int fd : {listener_.get(), wake_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_errno("epoll_ctl");
  }
  earliest_deadline_ns_ = options_.deadline_ns;
  ranks_.begin(0, options_.deadline_ns, monotonic_ns());
  thread_ = std::thread(&Hub::serve, this);
}

Hub::~Hub() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void Hub::post(FrameKind kind, std::string payload) {
  commands_.push_back({kind, std::move(payload)});
  ++commands_posted_;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Hub::begin(std::uint32_t number, const std::string& stage, const std::string& parameters,
                std::int64_t deadline_ns) {
  std::string payload = pack(Go{number, stage, parameters});
  if (stage.size() > 47 || payload.size() > kSmallFrame - 64) {
    throw Error("stage \"" + stage.substr(0, 48) +
                "\": a stage's name takes at most 47 bytes, its parameters 65,000");
  }
  const std::lock_guard lock(mutex_);
  ranks_.begin(number, deadline_ns, monotonic_ns());
  if (number != 0) post(FrameKind::kGo, std::move(payload));
}

Reason Hub::wait(std::int64_t until_ns) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const std::int64_t now = monotonic_ns();
    const Reason reason = ranks_.decide(now, full_since_ns_);
    if (reason != Reason::kOpen || now >= until_ns) return reason;
    // Grace periods and deadlines end without a message: check every 20 ms.
    changed_.wait_until(lock, time_point(std::min(until_ns, now + 20 * kMs)));
  }
}

void Hub::refresh(std::int64_t until_ns) {
  std::unique_lock lock(mutex_);
  ++question_;
  post(FrameKind::kReport, Packer().u32(question_).take());
  const std::uint64_t mine = commands_posted_;
  changed_.wait_until(lock, time_point(until_ns),
                      [&] { return commands_done_ >= mine && unanswered_ == 0; });
}

void Hub::send_roster() {
  const std::lock_guard lock(mutex_);
  post(FrameKind::kRoster, {});
}

void Hub::end(int exit_code, std::int64_t until_ns) {
  std::unique_lock lock(mutex_);
  ended_ = true;
  post(FrameKind::kEnd, Packer().i32(exit_code).take());
  const std::uint64_t mine = commands_posted_;
  changed_.wait_until(lock, time_point(until_ns),
                      [&] { return commands_done_ >= mine && unsent_ == 0; });
  // Let the guards close first: if this process ended with a ping unread, the kernel would reset
  // the connection, and a guard could lose an END that it has not read yet.
  changed_.wait_until(lock, time_point(std::min(until_ns, monotonic_ns() + kLingerNs)), [&] {
    for (int rank = 0; rank < ranks_.world(); ++rank) {
      const bool open = fd_of_rank_[static_cast<std::size_t>(rank)] >= 0;
      if (open && ranks_.record(rank).contact == Contact::kOk) return false;
    }
    return true;
  });
}

std::vector<RankRecord> Hub::snapshot() {
  const std::lock_guard lock(mutex_);
  return ranks_.records();
}

int Hub::result_count() {
  const std::lock_guard lock(mutex_);
  return ranks_.results();
}

std::int64_t Hub::remaining_ns() {
  const std::lock_guard lock(mutex_);
  return earliest_deadline_ns_ - monotonic_ns();
}

HubNotes Hub::notes() {
  const std::lock_guard lock(mutex_);
  return notes_;
}

}  // namespace oddrank::control
