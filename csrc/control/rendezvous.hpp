// How a guard finds the root's address if its worker does not bring it: the rendezvous file, where
// a host's guards read it once one worker knows it, and the fetcher, which asks torch's store.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/wire.hpp"
#include "os/clock.hpp"
#include "os/fd.hpp"

namespace oddrank::control {

// A command that a guard runs beside its loop, for what it prints. Not thread-safe. The kernel
// kills it if this process ends first.
class Command {
 public:
  // Starts it; its first word is a program's path. Nobody waits for it: the caller reaps.
  // After `until_ns` (CLOCK_MONOTONIC) its output counts as ended. Does nothing if it can't start.
  void start(const std::vector<std::string>& words, std::int64_t until_ns) {
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
  bool running() const noexcept { return static_cast<bool>(output_); }
  // For poll(): its output; -1 if it does not run.
  int fd() const noexcept { return output_.get(); }
  // Returns what it printed, once, after its end: at most 64 KiB. Nothing before.
  std::optional<std::string> take(std::int64_t now) {
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
  // Kills it, if it runs.
  void stop() noexcept {
    if (output_ && child_ > 0) ::kill(child_, SIGKILL);
    output_.reset();
  }

 private:
  Fd output_;
  pid_t child_ = 0;
  std::int64_t until_ns_ = 0;
  std::string text_;
};

// Returns the address in the file; "" if there is none. Refuses a file of another user or one that
// others may read or write: its text contains the job's secret.
inline std::string read_rendezvous_file(const std::string& path) {
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
// Removes the file, then its folder if that is empty.
inline void remove_rendezvous_file(const std::string& path) noexcept {
  if (path.empty()) return;
  ::unlink(path.c_str());
  std::array<char, 4096> folder{};
  const std::size_t size = path.rfind('/');
  if (size == std::string::npos || size >= folder.size()) return;
  path.copy(folder.data(), size);
  ::rmdir(folder.data());
}

// Not thread-safe. What it returns may be no address: call forget_file() then.
class Rendezvous {
 public:
  // `file`: its path; empty: none. `fetcher`: a command that prints the address; empty: none.
  Rendezvous(std::string file, std::vector<std::string> fetcher)
      : file_(std::move(file)), fetcher_(std::move(fetcher)) {}

  bool has_file() const noexcept { return !file_.empty(); }
  // Returns the text of the file, which it reads at most every 40 ms; "" if there is none.
  std::string look(std::int64_t now) {
    if (now - last_look_ < kLookNs) return "";
    last_look_ = now;
    return read_rendezvous_file(file_);
  }
  void forget_file() noexcept { file_.clear(); }
  void remove_file() const noexcept { remove_rendezvous_file(file_); }

  // Ends the fetcher: the address has come by another way.
  void stop_fetch() noexcept { fetch_.stop(); }
  // Starts the fetcher, once. Gives it up at `until_ns`.
  void start_fetch(std::int64_t until_ns) {
    if (fetched_ || fetcher_.empty()) return;
    fetched_ = true;
    fetch_.start(fetcher_, until_ns);
  }
  bool fetching() const noexcept { return fetch_.running(); }
  // For poll(): the fetcher's output; -1 if it does not run.
  int fd() const noexcept { return fetch_.fd(); }
  // Returns the fetcher's output once, after its end; "" before.
  std::string take_fetched(std::int64_t now) { return fetch_.take(now).value_or(""); }

 private:
  static constexpr std::int64_t kLookNs = 40 * kMs;

  std::string file_;
  std::vector<std::string> fetcher_;
  std::int64_t last_look_ = 0;
  Command fetch_;
  bool fetched_ = false;  // the fetcher was started
};

}  // namespace oddrank::control
