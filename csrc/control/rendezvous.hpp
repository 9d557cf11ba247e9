// How a guard finds the root's address if its worker does not bring it: the rendezvous file, where
// a host's guards read it once one worker knows it, and the fetcher, which asks torch's store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "os/fd.hpp"

namespace oddrank::control {

// A command that a guard runs beside its loop, for what it prints. Not thread-safe. The kernel
// kills it if this process ends first.
class Command {
 public:
  // Starts it; its first word is a program's path. Nobody waits for it: the caller reaps.
  // After `until_ns` (CLOCK_MONOTONIC) its output counts as ended. Does nothing if it can't start.
  void start(const std::vector<std::string>& words, std::int64_t until_ns);
  bool running() const noexcept { return static_cast<bool>(output_); }
  // For poll(): its output; -1 if it does not run.
  int fd() const noexcept { return output_.get(); }
  // Returns what it printed, once, after its end: at most 64 KiB. Nothing before.
  std::optional<std::string> take(std::int64_t now);
  // Kills it, if it runs.
  void stop() noexcept;

 private:
  Fd output_;
  pid_t child_ = 0;
  std::int64_t until_ns_ = 0;
  std::string text_;
};

// Returns the address in the file; "" if there is none. Refuses a file of another user or one that
// others may read or write: its text contains the job's secret.
std::string read_rendezvous_file(const std::string& path);
// Removes the file, then its folder if that is empty.
void remove_rendezvous_file(const std::string& path) noexcept;

// Not thread-safe. What it returns may be no address: call forget_file() then.
class Rendezvous {
 public:
  // `file`: its path; empty: none. `fetcher`: a command that prints the address; empty: none.
  Rendezvous(std::string file, std::vector<std::string> fetcher)
      : file_(std::move(file)), fetcher_(std::move(fetcher)) {}

  bool has_file() const noexcept { return !file_.empty(); }
  // Returns the text of the file, which it reads at most every 40 ms; "" if there is none.
  std::string look(std::int64_t now);
  void forget_file() noexcept { file_.clear(); }
  void remove_file() const noexcept { remove_rendezvous_file(file_); }

  // Ends the fetcher: the address has come by another way.
  void stop_fetch() noexcept { fetch_.stop(); }
  // Starts the fetcher, once. Gives it up at `until_ns`.
  void start_fetch(std::int64_t until_ns);
  bool fetching() const noexcept { return fetch_.running(); }
  // For poll(): the fetcher's output; -1 if it does not run.
  int fd() const noexcept { return fetch_.fd(); }
  // Returns the fetcher's output once, after its end; "" before.
  std::string take_fetched(std::int64_t now);

 private:
  std::string file_;
  std::vector<std::string> fetcher_;
  std::int64_t last_look_ = 0;
  Command fetch_;
  bool fetched_ = false;  // the fetcher was started
};

}  // namespace oddrank::control
