// The worker's page, messages and watchdog.
#include "control/worker.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "control/process.hpp"
#include "control/resolver.hpp"

namespace oddrank::control {
namespace {

constexpr int kMannersMs = 300;  // to end in its own way after end

// exit() runs this; forked children that share the page must not.
struct ExitNote {
  Page* page;
  pid_t worker;
};
void note_exit(int status, void* data) {
  const auto* note = static_cast<ExitNote*>(data);
  if (::getpid() == note->worker) note->page->exit_noted.store(status);
}

Page& map_page() {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_errno("mmap the control page");
  return *new (memory) Page;
}

}  // namespace

Worker& Worker::start(const GuardOptions& options) {
  Page& page = map_page();
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    throw_errno("socketpair");
  }
  Fd own(pair[0]);
  const Fd guards(pair[1]);
  sigset_t taken;
  ::sigemptyset(&taken);
  ::sigaddset(&taken, SIGTERM);
  ::sigaddset(&taken, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &taken, nullptr);
  Fd signals(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) throw_errno("signalfd");
  // Leaked on purpose: the watchdog uses it until the process is gone.
  auto* worker = new Worker(options, page, std::move(own), std::move(signals));
  ::on_exit(note_exit, new ExitNote{&page, ::getpid()});
  worker->guard_ = fork_guard(options, page, guards.get());
  kill_this_process_at(options.deadline_ns + 1'500 * kMs);
  std::thread(&Worker::watch, worker).detach();
  if (options.local_rank == 0) measure_resolver(page);
  return *worker;
}

Worker::Worker(GuardOptions options, Page& page, Fd socket, Fd signals)
    : options_(std::move(options)),
      page_(page),
      socket_(std::move(socket)),
      signals_(std::move(signals)) {
  Mark::set(mark_.stage, "join");
  page_.write(mark_);
}

void Worker::mark_stage(std::uint32_t number, std::string_view stage) noexcept {
  const std::lock_guard lock(mark_mutex_);
  // Not simply the next mark: ranks may come to the same stage by different numbers of steps.
  mark_.progress = static_cast<std::uint64_t>(number) << 32;
  mark_.stage_number = number;
  mark_.waiting = 0;
  mark_.published = 0;
  Mark::set(mark_.stage, stage);
  Mark::set(mark_.step, "");
  page_.begin_stage(mark_);
}

void Worker::mark_step(std::string_view step, bool waiting) noexcept {
  const std::lock_guard lock(mark_mutex_);
  ++mark_.progress;
  mark_.waiting = waiting ? 1 : 0;
  Mark::set(mark_.step, step);
  page_.write(mark_);
}

void Worker::mark_waiting_in_join(std::string_view step) noexcept {
  const std::lock_guard lock(mark_mutex_);
  if (mark_.stage_number != 0) return;
  ++mark_.progress;
  mark_.waiting = 1;
  Mark::set(mark_.step, step);
  page_.write(mark_);
}

void Worker::watch() {
  ::pthread_setname_np(::pthread_self(), "oddrank-watch");
  bool open = true;
  for (;;) {
    std::array<pollfd, 2> polls{
        {{signals_.get(), POLLIN, 0}, {open ? socket_.get() : -1, POLLIN, 0}}};
    const std::int64_t last = options_.deadline_ns + 1'000 * kMs;
    ::poll(polls.data(), polls.size(), Deadline::at_ns(last).remaining_ms());
    if ((polls[0].revents & POLLIN) != 0) take_signal();
    if (open && polls[1].revents != 0) {
      std::array<char, 65536> buffer{};
      const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got > 0) reader_.feed(buffer.data(), static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) open = false;
      take_frames(open);
    }
    if (monotonic_ns() >= last) ::_exit(options_.no_verdict);
  }
}

void Worker::take_signal() noexcept {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (page_.terminated.load() != 0) continue;
    page_.terminated_by.store(static_cast<std::int32_t>(info.ssi_pid));
    page_.terminated_ns.store(monotonic_ns());
    page_.terminated.store(static_cast<std::int32_t>(info.ssi_signo));
  }
}

void Worker::take_frames(bool open) {
  std::optional<int> end;
  {
    const std::lock_guard lock(mutex_);
    while (auto frame = reader_.next()) {
      if (frame->kind == Kind::kGo) {
        if (auto go = Go::unpack(frame->payload)) goes_.push_back(std::move(*go));
      } else if (frame->kind == Kind::kEnd) {
        end_ = end = Unpacker(frame->payload).i32();
      } else if (frame->kind == Kind::kClock) {
        clock_answer_ = ClockAnswer::unpack(frame->payload);
      }
    }
    lost_ = lost_ || !open;
  }
  heard_.notify_all();
  if (!end) return;
  // The main thread may be in C++, asleep, or without the GIL: it gets a moment, then no say.
  ::poll(nullptr, 0, kMannersMs);
  ::_exit(*end);
}

Worker::Signal Worker::wait(std::int64_t deadline_ns) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return end_ || lost_ || !goes_.empty(); };
  const auto left = std::chrono::nanoseconds(deadline_ns - monotonic_ns());
  heard_.wait_for(lock, left, ready);
  Signal signal;
  if (end_) {
    signal.what = Signal::What::kEnd;
    signal.exit_code = *end_;
  } else if (!goes_.empty()) {
    signal.what = Signal::What::kGo;
    signal.go = std::move(goes_.front());
    goes_.pop_front();
  } else if (lost_) {
    signal.what = Signal::What::kLost;
  }
  return signal;
}

void Worker::send_address(const std::string& address) {
  static_cast<void>(RootAddress::parse(address));  // here a bad one has a caller to be told
  write_frame(Kind::kAddress, address);
}

void Worker::publish(std::string_view payload) {
  std::string frame;
  {
    const std::lock_guard lock(mark_mutex_);
    frame = Packer().u32(mark_.stage_number).take();
    mark_.published = 1;
    mark_.waiting = 0;
    ++mark_.progress;
    page_.write(mark_);
  }
  write_frame(Kind::kResult, frame.append(payload));
}

void Worker::fail(std::string_view text) {
  // The mark stays as it was: whether the rank was waiting tells a victim from a culprit.
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mark_mutex_);
    number = mark_.stage_number;
  }
  write_frame(Kind::kFail, Packer().u32(number).text(text.substr(0, 2000)).take());
}

void Worker::write_frame(Kind kind, std::string_view payload) {
  const std::string bytes = encode(kind, payload);
  const std::size_t limit = frame_limit(static_cast<std::uint8_t>(kind));
  if (bytes.size() - 4 > limit) {
    throw Error("a message of " + std::to_string(bytes.size()) + " bytes is longer than the " +
                std::to_string(limit) + " bytes that the control plane takes: publish less");
  }
  const std::lock_guard lock(write_mutex_);
  const Deadline deadline = Deadline::at_ns(options_.deadline_ns);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t sent =
        ::send(socket_.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      at += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      pollfd entry{socket_.get(), POLLOUT, 0};
      if (::poll(&entry, 1, deadline.remaining_ms()) == 0) {
        throw Error("this rank's guard (pid " + std::to_string(guard_) +
                    ") took no message until the deadline: was it stopped?");
      }
    } else if (errno != EINTR) {
      throw SystemError("send to this rank's guard (pid " + std::to_string(guard_) + ")", errno);
    }
  }
}

}  // namespace oddrank::control
