// Waits for children and signals in one thread, without handlers.
#include "control/keeper.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "control/process.hpp"

namespace oddrank::control {
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
