// One process's turn to write to one output: taken, watched, given back.
#pragma once

#include <cstdint>

#include "printing/layout.hpp"

namespace oddrank::printing {

// Names an output (file, pipe, terminal, socket) whatever descriptor leads to it; never 0. Where
// the descriptor is not open: 0, and errno.
std::uint64_t output_key(int fd) noexcept;

// A holder that was left behind because it neither wrote nor let go.
struct Abandoned {
  std::uint32_t pid = 0;  // 0: nobody was
  char state = '?';       // as in /proc/PID/stat; 'X' where there is no such process
};

// Usage: if (!turn.try_take()) while (!turn.wait(fd)) look_at_signals();  write...; turn.end(true);
// Not reentrant: a thread that holds a turn must not wait for the same output again.
class Turn {
 public:
  Turn(Table& table, std::uint64_t key, std::int64_t timeout_ms) noexcept;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Without sleeping.
  bool try_take() noexcept;
  // Sleeps for one slice at most (50 ms), so that the caller can look at signals in between. True:
  // write now. A holder that is stopped or gone is abandoned after the timeout; one that runs only
  // after ten of them, in which `fd` always accepted bytes: else nobody could write anyway.
  bool wait(int fd) noexcept;
  // Somebody was cut in the middle of a line: start on a new one.
  bool after_cut() const noexcept { return after_cut_; }
  // False once others gave this holder up (it was stopped): write no more, take another turn.
  bool still_mine() const noexcept;
  // `whole` is false where the message was left unfinished: the next writer starts on a new line.
  void end(bool whole) noexcept;

  const Abandoned& abandoned() const noexcept { return abandoned_; }

 private:
  Lane& lane() const noexcept { return output_.lanes[number_ % kLanes]; }
  bool settle(int result) noexcept;
  bool nap() noexcept;
  bool stuck(int fd) noexcept;
  void abandon() noexcept;
  void watch(std::int64_t now) noexcept;

  Output& output_;
  const std::uint64_t key_;
  const std::int64_t timeout_ns_;
  std::uint32_t number_ = 0;  // of the lane that is tried or held
  int naps_ = 0;
  bool held_ = false;  // false while writing without the lock: every lane was given up
  bool after_cut_ = false;
  std::uint32_t turns_ = 0;       // of the lane when last looked at
  std::int64_t moved_ns_ = 0;     // when the lane last changed hands, as far as seen
  std::int64_t accepted_ns_ = 0;  // since when the output has accepted bytes
  std::uint32_t lanes_given_up_ = 0;
  Abandoned abandoned_;
};

}  // namespace oddrank::printing
