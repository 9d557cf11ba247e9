// oddrank-guard: the program that `oddrank run` starts beside each rank. It watches that process,
// tells the job's root what changes, and ends soon after it. It prints nothing, but for one line
// about wrong options.
#include <fcntl.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "control/process.hpp"
#include "os/error.hpp"
#include "run/watcher.hpp"

namespace oddrank::run {
namespace {

constexpr int kUsage = 2;
constexpr int kFailed = 1;
constexpr int kMostWaitMs = 60'000;  // for the next bytes of the options

// Reads the options from stdin: they hold the job's secret, and other users may read a command
// line. Another child of that process may keep the pipe open: the end of the options is enough.
WatchOptions read_options() {
  std::string bytes;
  std::array<char, 4096> some{};
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (::poll(&input, 1, kMostWaitMs) > 0) {
    const ssize_t got = ::read(STDIN_FILENO, some.data(), some.size());
    if (got <= 0) break;
    bytes.append(some.data(), static_cast<std::size_t>(got));
    if (auto options = control::unpack<WatchOptions>(bytes)) return std::move(*options);
  }
  throw Error("no valid options on stdin: `oddrank run` starts this program");
}

// Leaves the process that started this one, its session, folder, descriptors and signals.
void detach(int kept) {
  const pid_t child = ::fork();
  if (child < 0) throw_errno("fork");
  if (child > 0) ::_exit(0);
  ::setsid();
  [[maybe_unused]] const int moved = ::chdir("/");
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; null >= 0 && fd <= 2; ++fd) ::dup2(null, fd);
  control::close_descriptors_but(kept, -1);
  control::reset_signals();
}

int guard() {
  // No descriptor of ours may be 0 to 2: those are replaced later.
  for (int fd = 0; fd >= 0 && fd <= 2;) fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  try {
    WatchOptions options = read_options();
    // Before the fork: the process that started this one waits for it, so that its worker still is
    // who it is.
    control::ProcessWatch worker(options.pid);
    if (worker.start_time() == 0) {
      throw Error("there is no process " + std::to_string(options.pid));
    }
    detach(worker.fd());
    try {
      Watcher(std::move(options), std::move(worker)).run();
    } catch (const std::exception&) {
      ::_exit(kFailed);  // nobody reads a message
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oddrank-guard: %s\n", error.what());
    return kUsage;
  }
  return 0;
}

}  // namespace
}  // namespace oddrank::run

int main() { return oddrank::run::guard(); }
