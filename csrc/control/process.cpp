// Watches and kills a process by /proc and pidfds; the keeper waits in one thread, without
// handlers.
#include "control/process.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "os/clock.hpp"
#include "os/error.hpp"

namespace oddrank::control {
namespace {

// First version of the kernel's struct pidfd_info, which older headers lack.
struct PidfdInfo {
  std::uint64_t mask;
  std::uint64_t cgroup;
  std::uint32_t pid, tgid, ppid;
  std::array<std::uint32_t, 8> ids;
  std::int32_t wait_status;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr std::uint64_t kInfoExit = 1 << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);
constexpr std::int64_t kZombieAfterNs = 300'000'000;
constexpr std::int64_t kUninterruptibleAfterNs = 1'000'000'000;

void set_wait_status(ProcessState& state, int status) noexcept {
  if (WIFSIGNALED(status)) {
    state.signal = WTERMSIG(status);
  } else if (WIFEXITED(status)) {
    state.exit_code = WEXITSTATUS(status);
  }
}

}  // namespace

const char* name_of(Liveness life) noexcept {
  static constexpr std::array kNames{"running", "stopped", "zombie", "dead", "uninterruptible"};
  return kNames[static_cast<std::size_t>(life)];
}

ProcessWatch::ProcessWatch(pid_t pid) : pid_(pid) {
#ifdef SYS_pidfd_open
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#endif
  const ProcStat stat = read_stat(pid);
  start_time_ = stat.start_time;
  parent_ = stat.parent;
}

bool ProcessWatch::dead_by_pidfd() const noexcept {
  if (!pidfd_) return false;
  pollfd entry{pidfd_.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void ProcessWatch::note_death(const ProcStat& stat) {
  state_.life = Liveness::kDead;
  state_.wchan.clear();
  if (stat.is_zombie()) {
    set_wait_status(state_, stat.wait_status);
    return;
  }
  if (!pidfd_) return;
  PidfdInfo info{};
  info.mask = kInfoExit;
  if (::ioctl(pidfd_.get(), kGetInfo, &info) == 0 && (info.mask & kInfoExit) != 0) {
    set_wait_status(state_, info.wait_status);
  }
}

const ProcessState& ProcessWatch::look() {
  if (state_.life == Liveness::kDead) return state_;
  const bool ended = dead_by_pidfd();
  ProcStat stat = read_stat(pid_);
  const bool gone = stat.state == 0 || (start_time_ != 0 && stat.start_time != start_time_);
  if (gone) stat.state = 0;
  if (ended || gone || (!pidfd_ && stat.is_zombie())) {
    note_death(stat);
    return state_;
  }
  parent_ = stat.parent;
  if (stat.state == 'D') {
    if (uninterruptible_since_ == 0 || uninterruptible_ticks_ != stat.cpu_ticks) {
      uninterruptible_since_ = monotonic_ns();
      uninterruptible_ticks_ = stat.cpu_ticks;
    }
  } else {
    uninterruptible_since_ = 0;
  }
  const Liveness before = state_.life;
  if (stat.is_stopped()) {
    state_.life = Liveness::kStopped;
  } else if (stat.is_zombie()) {
    // The main thread has ended, others still run: normal for a moment in every exit.
    if (zombie_since_ == 0) zombie_since_ = monotonic_ns();
    if (monotonic_ns() - zombie_since_ >= kZombieAfterNs) state_.life = Liveness::kZombie;
  } else if (uninterruptible_since_ != 0 &&
             monotonic_ns() - uninterruptible_since_ >= kUninterruptibleAfterNs) {
    state_.life = Liveness::kUninterruptible;
    if (before != state_.life) state_.wchan = wchan_of(pid_);
  } else {
    state_.life = Liveness::kRunning;
  }
  if (state_.life != Liveness::kUninterruptible) state_.wchan.clear();
  return state_;
}

void ProcessWatch::kill(int number) noexcept {
  if (state_.life == Liveness::kDead) return;
#ifdef SYS_pidfd_send_signal
  if (pidfd_) {
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
    return;
  }
#endif
  if (start_time_ != 0 && read_stat(pid_).start_time == start_time_) ::kill(pid_, number);
}

namespace {
void close_range_of(unsigned first, unsigned last) noexcept {
  if (first > last) return;
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, first, last, 0) == 0) return;
#endif
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const unsigned end = std::min<unsigned>(
      last, static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 16)));
  for (unsigned fd = first; fd <= end; ++fd) ::close(static_cast<int>(fd));
}
}  // namespace

void close_descriptors_but(int socket, int watch) noexcept {
  const auto first = static_cast<unsigned>(std::max(std::min(socket, watch), 2));
  const auto second = static_cast<unsigned>(std::max({socket, watch, 2}));
  close_range_of(3, first - 1);
  close_range_of(first + 1, second - 1);
  close_range_of(second + 1, ~0U);
}

void reset_signals() noexcept {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &action, nullptr);
  ignore_launchers_signals();
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void ignore_launchers_signals() noexcept {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGQUIT, SIGUSR1, SIGUSR2}) {
    ::sigaction(number, &action, nullptr);
  }
}

void kill_this_process_at(std::int64_t deadline_ns) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) throw_errno("timer_create");
  itimerspec at{};
  at.it_value.tv_sec = deadline_ns / 1'000'000'000;
  at.it_value.tv_nsec = deadline_ns % 1'000'000'000;
  if (::timer_settime(timer, TIMER_ABSTIME, &at, nullptr) != 0) throw_errno("timer_settime");
}

namespace {

constexpr int kGuardLooksMs = 300;  // the guard reads /proc every 50 ms

// Sends the signal to the rank with its original sender. The rank may already have got it too.
void pass_on(pid_t rank, const siginfo_t& from) noexcept {
  siginfo_t info{};
  info.si_signo = from.si_signo;
  info.si_code = SI_QUEUE;  // the kernel refuses a foreign si_pid with other codes
  info.si_pid = from.si_pid;
  info.si_uid = from.si_uid;
  if (::syscall(SYS_rt_sigqueueinfo, rank, from.si_signo, &info) != 0) ::kill(rank, from.si_signo);
}

[[noreturn]] void end_like(int status) noexcept {
  if (WIFEXITED(status)) ::_exit(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  core.rlim_cur = 0;  // the rank has left its own core
  ::setrlimit(RLIMIT_CORE, &core);
  ::signal(number, SIG_DFL);
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, number);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  ::kill(::getpid(), number);
  ::_exit(128 + number);  // process 1 of a container survives the signal
}

// Reaps dead children. Returns whether any are left.
bool reap(pid_t rank, bool& rank_ended, int& status) noexcept {
  for (;;) {
    siginfo_t child{};
    if (::waitid(P_ALL, 0, &child, WEXITED | WNOWAIT | WNOHANG) != 0) return errno != ECHILD;
    if (child.si_pid == 0) return true;
    const bool is_rank = child.si_pid == rank;
    rank_ended = rank_ended || is_rank;  // its pid may be reused once it is reaped
    if (is_rank) ::poll(nullptr, 0, kGuardLooksMs);
    ::waitpid(child.si_pid, is_rank ? &status : nullptr, 0);
  }
}

}  // namespace

void keep(pid_t rank, std::int64_t deadline_ns, const std::vector<int>& passed_on) {
  ::prctl(PR_SET_NAME, "oddrank-keeper");
  kill_this_process_at(deadline_ns);
  sigset_t taken;
  ::sigemptyset(&taken);
  ::sigaddset(&taken, SIGCHLD);
  for (const int number : passed_on) ::sigaddset(&taken, number);
  ::sigprocmask(SIG_BLOCK, &taken, nullptr);
  bool rank_ended = false;
  int status = 1 << 8;  // exit code 1 if the rank's status is unknown
  while (reap(rank, rank_ended, status)) {
    siginfo_t info{};
    const timespec often{1, 0};
    const int number = ::sigtimedwait(&taken, &info, &often);
    if (number > 0 && number != SIGCHLD && !rank_ended) pass_on(rank, info);
  }
  end_like(status);
}

}  // namespace oddrank::control
