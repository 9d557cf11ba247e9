// Base of both kinds of guards, and how a guard finds the root's address if its worker does not
// bring it: the rendezvous file, where a host's guards read it once one worker knows it, and the
// fetcher, which asks torch's store.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/link.hpp"
#include "control/messages.hpp"
#include "control/process.hpp"
#include "os/clock.hpp"
#include "os/fd.hpp"

namespace oddrank::control {

// A command that a guard runs beside its loop, for what it prints. Not thread-safe. The kernel
// kills it if this process ends first.
class Command {
 public:
  // Starts it; its first word is a program's path. Does not wait for it: the caller reaps.
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

// Base of both kinds of guards: watches a worker, seeks the root, reports to it. Not thread-safe.
class GuardBase {
 public:
  GuardBase(const GuardBase&) = delete;
  GuardBase& operator=(const GuardBase&) = delete;

 protected:
  GuardBase(const GuardIdentity& identity, ProcessWatch worker, std::int64_t longest_turn_ns)
      : identity_(identity),
        worker_(std::move(worker)),
        link_(longest_turn_ns),
        launcher_(worker_.parent()) {}
  virtual ~GuardBase() = default;

  // Dials the root. Returns false if the text is not its address.
  virtual bool dial(const std::string& address) = 0;
  virtual State state(std::int64_t now) const = 0;

  bool is_dead() const noexcept { return worker_.last().life == Liveness::kDead; }
  // Sleeps until something happens, at most so long. Returns whether the worker has died.
  bool sleep(std::int64_t ns, const std::vector<pollfd>& more) const {
    // poll() skips fd -1.
    std::vector<pollfd> polls{{is_dead() ? -1 : worker_.fd(), POLLIN, 0}, {fetch_.fd(), POLLIN, 0}};
    polls.insert(polls.end(), more.begin(), more.end());
    link_.add_polls(polls);
    const timespec pause{ns / 1'000'000'000, ns % 1'000'000'000};
    ::ppoll(polls.data(), polls.size(), &pause, nullptr);
    return polls[0].revents != 0;
  }
  // Looks for the root's address where the worker does not bring it: in the rendezvous file, at
  // most every 40 ms, and by the fetcher, which runs once, until then; 0: not yet.
  void seek(std::int64_t now, std::int64_t fetch_until) {
    if (!link_.has_address()) {
      if (now - file_read_ns_ >= 40 * kMs) {
        file_read_ns_ = now;
        const std::string text = read_rendezvous_file(identity_.rendezvous_file);
        if (dial(text)) return;
        file_is_refused_ = !text.empty();
      }
      if (fetch_until != 0 && !std::exchange(fetched_, true)) {
        fetch_.start(identity_.fetcher, fetch_until);
      }
    }
    const auto address = fetch_.take(now);
    if (address && !link_.has_address()) dial(*address);
  }
  // Returns whether the worker's life, or its parent, has changed.
  bool look_at_worker(std::int64_t now) {
    looked_ns_ = now;
    const Liveness before = worker_.last().life;
    const Liveness life = worker_.look().life;
    if (life != before) changed_ns_ = now;
    orphaned_ = launcher_ > 1 && worker_.parent() != launcher_;
    return life != before || orphaned_ != reported_.orphaned;
  }
  // Returns the part of the state that every worker has.
  State process_state(std::int64_t now) const {
    State state;
    static_cast<ProcessState&>(state) = worker_.last();
    state.orphaned = orphaned_;
    state.fault_age_ns = state.life == Liveness::kRunning ? -1 : now - changed_ns_;
    return state;
  }
  void report(std::int64_t now, std::uint32_t question) {
    reported_ = state(now);
    reported_.report = question;
    link_.send(FrameKind::kState, pack(reported_));
  }
  // Sends a heartbeat if it is time. Returns whether it was.
  bool ping(std::int64_t now) {
    if (!link_.up() || now - pinged_ns_ < link_.welcome().heartbeat_ms * kMs) return false;
    pinged_ns_ = now;
    link_.send(FrameKind::kPing, {});
    return true;
  }

  // Whether the rendezvous file may bring the address: one of another version does not.
  bool has_file() const noexcept { return !identity_.rendezvous_file.empty() && !file_is_refused_; }

  const GuardIdentity identity_;
  ProcessWatch worker_;
  Link link_;
  Command fetch_;
  pid_t launcher_;  // the worker's parent at the start
  std::int64_t looked_ns_ = 0;
  std::int64_t changed_ns_ = 0;  // when the worker's life changed
  bool orphaned_ = false;
  State reported_;

 private:
  std::int64_t pinged_ns_ = 0;
  std::int64_t file_read_ns_ = 0;
  bool file_is_refused_ = false;
  bool fetched_ = false;  // the fetcher was started
};

}  // namespace oddrank::control
