// A process's turn to write to an output: taken, watched, given back.
#pragma once

#include <cstdint>

#include "printing/lock_file.hpp"

namespace oddrank::printing {

// Returns the key of an output (file, pipe, terminal, socket), the same for all its descriptors and
// never 0. Returns 0 and sets errno if the descriptor is not open.
std::uint64_t output_key(int fd) noexcept;

// Returns the output's lock. Several outputs may share one.
Output& output_of(Table& table, std::uint64_t key) noexcept;

// A holder that others gave up because it neither wrote nor gave its turn back.
struct Abandoned {
  std::uint32_t pid = 0;  // 0: none was given up
  char state = '?';       // as in /proc/PID/stat; 'X' if it is gone
};

// Usage: if (!turn.try_take()) while (!turn.wait(fd)) look_at_signals();  write...; turn.end(true);
// Not reentrant: a thread that holds a turn must not wait for the same lock again.
class Turn {
 public:
  Turn(Table& table, std::uint64_t key, std::int64_t timeout_ms) noexcept;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Tries without sleeping.
  bool try_take() noexcept;
  // Sleeps for at most 50 ms, so that the caller can run signal handlers in between. Returns
  // whether the caller may write now. Gives up a holder that is stopped or gone after the timeout,
  // and a running one after ten timeouts in which `fd` always accepted bytes (else no process could
  // write).
  bool wait(int fd) noexcept;
  // Returns whether a message was cut in the middle of a line: begin a new one.
  bool after_cut() const noexcept { return after_cut_; }
  // Returns false once others gave this holder up (it was stopped): write no more, take another
  // turn.
  bool still_mine() const noexcept;
  // `whole`: false if the message is unfinished. The next writer then begins a new line.
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
