// Writes the worker's marks, talks to its guard, runs the watchdog.
#include "control/worker.hpp"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>
#include <thread>

#include "control/process.hpp"
#include "os/clock.hpp"
#include "os/encoding.hpp"
#include "os/error.hpp"

namespace oddrank::control {
namespace {

constexpr int kMannersMs = 300;  // after END, for the main thread to exit by itself

// For note_exit(), which exit() runs: forked children share the page and must not write to it.
struct ExitNote {
  Page* page;
  pid_t worker;
};
void note_exit(int status, void* data) {
  const auto* note = static_cast<ExitNote*>(data);
  if (::getpid() == note->worker) note->page->exit_noted.store(status);
}

// For note_signal(): a signal handler has no other way to get them.
struct SignalNote {
  std::atomic<Page*> page{nullptr};
  std::atomic<pid_t> worker{0};
  std::atomic_flag noted = ATOMIC_FLAG_INIT;
};
SignalNote signal_note;

// Notes the first SIGTERM or SIGINT on the page. A forked child inherits the handler, which then
// ends it by the default action; exec() resets handlers to the default.
void note_signal(int number, siginfo_t* info, void*) {
  if (::getpid() != signal_note.worker.load()) {
    ::signal(number, SIG_DFL);
    ::raise(number);
    return;
  }
  if (signal_note.noted.test_and_set()) return;
  Page& page = *signal_note.page.load();
  page.terminated_by.store(static_cast<std::int32_t>(info->si_pid));
  page.terminated_ns.store(monotonic_ns());
  page.terminated.store(static_cast<std::int32_t>(number));
}

// Handlers, not a blocked mask: a mask survives exec(), and signals could not end such children.
void take_launchers_signals(Page& page) {
  signal_note.page.store(&page);
  signal_note.worker.store(::getpid());
  sigset_t taken;
  ::sigemptyset(&taken);
  struct sigaction action {};
  action.sa_sigaction = note_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int number : {SIGTERM, SIGINT}) {
    ::sigaction(number, &action, nullptr);
    ::sigaddset(&taken, number);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &taken, nullptr);  // the command blocked them at its start
}

Page& map_page() {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_errno("mmap the control page");
  return *new (memory) Page;
}

// Throws Error if a frame cannot hold the payload.
void check_length(FrameKind kind, std::size_t payload) {
  const std::size_t limit = frame_limit(static_cast<std::uint8_t>(kind));
  if (payload + 1 > limit) {
    throw Error("a message of " + std::to_string(payload + 5) + " bytes is longer than the " +
                std::to_string(limit) + " bytes that the control plane takes: publish less");
  }
}

// Measures how fast reverse DNS answers: torch's store uses it at every connection. Starts a thread
// that may hang as long as the resolver, and notes its start and end on the page.
void measure_resolver(Page& page) {
  const auto address = numeric_address(interface_addresses("").front(), 0);
  if (!address) return;
  page.resolver_started.store(monotonic_ns());
  try {
    // The page is never unmapped: the thread may return at any time.
    std::thread([&page, where = *address] {
      std::array<char, NI_MAXHOST> name{};
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&where.storage), where.size, name.data(),
                    name.size(), nullptr, 0, 0);
      page.resolver_answered.store(monotonic_ns());
    }).detach();
  } catch (const std::system_error&) {
    page.resolver_started.store(0);  // no thread, no measurement
  }
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
  take_launchers_signals(page);
  // Leaked on purpose: the watchdog uses it until the process ends.
  auto* worker = new Worker(options, page, std::move(own));
  ::on_exit(note_exit, new ExitNote{&page, ::getpid()});
  worker->guard_ = fork_guard(options, page, guards.get());
  kill_this_process_at(options.deadline_ns + 1'500 * kMs);
  std::thread(&Worker::watch, worker).detach();
  if (options.local_rank == 0) measure_resolver(page);
  return *worker;
}

Worker::Worker(GuardOptions options, Page& page, Fd socket)
    : options_(std::move(options)), page_(page), socket_(std::move(socket)) {
  set_text(mark_.stage, "join");
  page_.write(mark_);
}

void Worker::mark_stage(std::uint32_t number, std::string_view stage) noexcept {
  const std::lock_guard lock(mark_mutex_);
  // Comparable between ranks, which may take different numbers of steps to reach a stage.
  mark_.progress = static_cast<std::uint64_t>(number) << 32;
  mark_.stage_number = number;
  mark_.waiting = 0;
  mark_.published = 0;
  set_text(mark_.stage, stage);
  set_text(mark_.step, "");
  page_.begin_stage(mark_);
}

void Worker::mark_step(std::string_view step, bool waiting, bool in_join) noexcept {
  const std::lock_guard lock(mark_mutex_);
  if (in_join && mark_.stage_number != 0) return;
  ++mark_.progress;
  mark_.waiting = waiting ? 1 : 0;
  set_text(mark_.step, step);
  page_.write(mark_);
}

void Worker::watch() {
  ::pthread_setname_np(::pthread_self(), "oddrank-watch");
  bool open = true;
  for (;;) {
    pollfd entry{open ? socket_.get() : -1, POLLIN, 0};
    const std::int64_t last = options_.deadline_ns + 1'000 * kMs;
    ::poll(&entry, 1, Deadline::at_ns(last).remaining_ms());
    if (open && entry.revents != 0) {
      std::array<char, 65536> buffer{};
      const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got > 0) reader_.feed(buffer.data(), static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) open = false;
      take_frames(open);
    }
    if (monotonic_ns() >= last) ::_exit(options_.no_verdict);
  }
}

void Worker::take_frames(bool open) {
  std::optional<int> end;
  {
    const std::lock_guard lock(mutex_);
    while (auto frame = reader_.next()) {
      if (frame->kind == FrameKind::kGo) {
        if (auto go = unpack<Go>(frame->payload)) goes_.push_back(std::move(*go));
      } else if (frame->kind == FrameKind::kEnd) {
        end_ = end = Unpacker(frame->payload).next<std::int32_t>();
      } else if (frame->kind == FrameKind::kClock) {
        clock_answer_ = unpack<ClockAnswer>(frame->payload);
      }
    }
    lost_ = lost_ || !open;
  }
  heard_.notify_all();
  if (!end) return;
  // Give the main thread a moment to exit; it may be blocked in C++ or waiting for the GIL.
  ::poll(nullptr, 0, kMannersMs);
  ::_exit(*end);
}

Worker::Signal Worker::wait(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return end_ || lost_ || !goes_.empty(); };
  heard_.wait_for(lock, std::chrono::nanoseconds(deadline.ns() - monotonic_ns()), ready);
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
  static_cast<void>(RootAddress::parse(address));  // throws here, not in the guard
  write_frame(FrameKind::kAddress, address);
}

void Worker::publish(std::string_view payload) {
  std::string frame;
  check_length(FrameKind::kResult, sizeof mark_.stage_number + payload.size());
  {
    const std::lock_guard lock(mark_mutex_);
    frame = packed(mark_.stage_number);
    mark_.published = 1;
    mark_.waiting = 0;
    ++mark_.progress;
    page_.write(mark_);
  }
  write_frame(FrameKind::kResult, frame.append(payload));
}

void Worker::fail(std::string_view text) {
  // Keep the mark: whether the rank was waiting distinguishes a victim from a culprit.
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mark_mutex_);
    number = mark_.stage_number;
  }
  write_frame(FrameKind::kFail, packed(number, text.substr(0, 2000)));
}

void Worker::write_frame(FrameKind kind, std::string_view payload) {
  check_length(kind, payload.size());
  const std::string bytes = encode(kind, payload);
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

ClockAnswer Worker::sync_clock(Deadline deadline, bool shortcut) {
  const std::int64_t deadline_ns = deadline.ns();
  const std::int64_t time = deadline_ns - monotonic_ns();
  ClockQuestion question;
  {
    const std::lock_guard lock(mutex_);
    question.number = ++clock_question_;
    clock_answer_.reset();
  }
  // Earlier, so that the guard answers with what it has before this rank gives up.
  question.deadline_ns = deadline_ns - std::max(time / 10, std::min(time / 2, 300 * kMs));
  question.shortcut = shortcut;
  write_frame(FrameKind::kAskClock, pack(question));
  std::unique_lock lock(mutex_);
  const auto answered = [&] { return clock_answer_ && clock_answer_->number == question.number; };
  heard_.wait_for(lock, std::chrono::nanoseconds(deadline_ns - monotonic_ns()),
                  [&] { return end_ || lost_ || answered(); });
  if (answered() && clock_answer_->trouble.empty()) return *clock_answer_;
  std::string why = "no answer from this rank's guard (pid " + std::to_string(guard_) +
                    ") in time: was it stopped?";
  if (answered()) why = clock_answer_->trouble;
  if (lost_) why = "this rank's guard (pid " + std::to_string(guard_) + ") has ended";
  if (end_) why = "the run has ended";
  throw Error("cannot compare this rank's clock with the root's: " + why);
}

}  // namespace oddrank::control
