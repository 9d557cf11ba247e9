// A command that a guard runs beside its loop, for what it prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "os/fd.hpp"

namespace oddrank::control {

// Not thread-safe. The kernel kills the command if this process ends first.
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

 private:
  Fd output_;
  std::int64_t until_ns_ = 0;
  std::string text_;
};

}  // namespace oddrank::control
