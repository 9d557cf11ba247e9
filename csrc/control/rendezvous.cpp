// Runs commands; reads and removes the rendezvous file, which oddrank/control/rendezvous.py writes.
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
}

void Command::start(const std::vector<std::string>& words, std::int64_t until_ns) {
  std::array<int, 2> pipe{};
  if (words.empty() || ::pipe2(pipe.data(), O_CLOEXEC) != 0) return;
  output_.reset(pipe[0]);
  const Fd theirs(pipe[1]);
  until_ns_ = until_ns;
  text_.clear();
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  child_ = ::fork();
  if (child_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(theirs.get(), STDOUT_FILENO);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

std::optional<std::string> Command::take(std::int64_t now) {
  if (!output_) return std::nullopt;
  pollfd entry{output_.get(), POLLIN, 0};
  bool open = now < until_ns_;
  while (open && ::poll(&entry, 1, 0) > 0) {
    std::array<char, 4096> text{};
    const ssize_t got = ::read(output_.get(), text.data(), text.size());
    open = got > 0 && text_.size() < kSmallFrame;
    if (got > 0) text_.append(text.data(), static_cast<std::size_t>(got));
  }
  if (open) return std::nullopt;
  output_.reset();
  return std::exchange(text_, {});
}

void Command::stop() noexcept {
  if (output_ && child_ > 0) ::kill(child_, SIGKILL);
  output_.reset();
}

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

void Rendezvous::start_fetch(std::int64_t until_ns) {
  if (fetched_ || fetcher_.empty()) return;
  fetched_ = true;
  fetch_.start(fetcher_, until_ns);
}

std::string Rendezvous::take_fetched(std::int64_t now) { return fetch_.take(now).value_or(""); }

}  // namespace oddrank::control
