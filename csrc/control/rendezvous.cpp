// Reads and removes the rendezvous file, which oddrank/control/rendezvous.py writes; runs the
// fetcher.
#include "control/rendezvous.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "control/wire.hpp"
#include "os/clock.hpp"

namespace oddrank::control {
namespace {
constexpr std::int64_t kLookNs = 40 * kMs;
constexpr std::int64_t kFetchNs = 60'000 * kMs;  // with an import of torch
}  // namespace

std::string read_rendezvous_file(const std::string& path) {
  if (path.empty()) return "";
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file) return "";
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & 077) != 0) {
    return "";
  }
  std::array<char, 4096> text{};
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : "";
}

void remove_rendezvous_file(const std::string& path) noexcept {
  if (path.empty()) return;
  ::unlink(path.c_str());
  std::array<char, 4096> folder{};
  const std::size_t size = path.rfind('/');
  if (size == std::string::npos || size >= folder.size()) return;
  path.copy(folder.data(), size);
  ::rmdir(folder.data());
}

std::string Rendezvous::look(std::int64_t now) {
  if (now - last_look_ < kLookNs) return "";
  last_look_ = now;
  return read_rendezvous_file(file_);
}

void Rendezvous::start_fetch(std::int64_t now, std::int64_t last_ns) {
  if (fetch_until_ != 0 || fetcher_.empty()) return;
  fetch_until_ = std::min(now + kFetchNs, last_ns);
  std::array<int, 2> pipe{};
  if (now >= fetch_until_ || ::pipe2(pipe.data(), O_CLOEXEC) != 0) return;
  fetch_.reset(pipe[0]);
  const Fd output(pipe[1]);
  std::vector<char*> arguments;
  for (std::string& one : fetcher_) arguments.push_back(one.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(output.get(), STDOUT_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

std::string Rendezvous::take_fetched(std::int64_t now) {
  if (!fetch_) return "";
  pollfd entry{fetch_.get(), POLLIN, 0};
  bool open = now < fetch_until_;
  while (open && ::poll(&entry, 1, 0) > 0) {
    std::array<char, 4096> text{};
    const ssize_t got = ::read(fetch_.get(), text.data(), text.size());
    open = got > 0 && fetched_.size() < kSmallFrame;
    if (got > 0) fetched_.append(text.data(), static_cast<std::size_t>(got));
  }
  if (open) return "";
  fetch_.reset();
  return std::exchange(fetched_, {});
}

}  // namespace oddrank::control
