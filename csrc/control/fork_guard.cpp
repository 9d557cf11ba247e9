// Forks the guard and detaches it: own session, own descriptors, own signals.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "control/guard_loop.hpp"
#include "os/clock.hpp"
#include "os/error.hpp"

namespace oddrank::control {
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

// Closes all descriptors from 3 on except these two; `watch` may be -1.
void keep_only(int socket, int watch) noexcept {
  const auto first = static_cast<unsigned>(watch < 0 ? socket : std::min(socket, watch));
  const auto second = static_cast<unsigned>(std::max(socket, watch));
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

}  // namespace

void ignore_launchers_signals() noexcept {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGQUIT, SIGUSR1, SIGUSR2}) {
    ::sigaction(number, &action, nullptr);
  }
}

pid_t fork_guard(const GuardOptions& options, Page& page, int guard_socket) {
  // Before the fork: this worker may be dead and reaped before its guard runs.
  ProcessWatch worker(::getpid());
  const pid_t child = ::fork();
  if (child < 0) throw_errno("fork the guard of rank " + std::to_string(options.rank));
  if (child > 0) return child;
  try {
    ::setsid();
    keep_only(guard_socket, worker.fd());
    reset_signals();
    ::prctl(PR_SET_NAME, "oddrank-guard");
    kill_this_process_at(options.deadline_ns + 1'500'000'000);
    GuardLoop(options, page, Fd(guard_socket), std::move(worker)).run();
  } catch (const std::exception& error) {
    const std::string line = std::string("oddrank: guard failed: ") + error.what() + "\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    ::_exit(2);
  }
  ::_exit(0);  // never return to Python, run no exit handler of the worker
}

}  // namespace oddrank::control
