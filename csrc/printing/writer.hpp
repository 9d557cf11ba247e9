// Writes one message to a descriptor as one piece, whoever else writes there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "printing/lock.hpp"

namespace oddrank::printing {

// Called when a wait or a write was interrupted, possibly with the turn held: runs what is due
// (signal handlers) and answers whether to stop.
struct Interrupt {
  bool (*run)(void* context);
  void* context;
  bool operator()() const { return run(context); }
};

inline constexpr int kInterrupted = -1;

// What is held by this thread, innermost first. A message for the same output from inside (a signal
// handler, a write() written in Python) must neither wait for itself nor get into the middle.
class Hold {
 public:
  enum class Kind : std::uint8_t { kWriting, kPython };
  Hold(std::uint64_t key, Kind kind) noexcept;
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  static Hold* find(std::uint64_t key) noexcept;
  Kind kind() const noexcept { return kind_; }
  std::string later;  // messages that came up inside a write: they follow it

 private:
  const std::uint64_t key_;
  const Kind kind_;
  Hold* const outer_;
};

// Waits for the turn: false where `interrupt` said stop.
bool take(Turn& turn, int fd, const Interrupt& interrupt);

// True where the line that was cut is not known to have ended after all.
bool needs_new_line(int fd) noexcept;

// The whole message or an error: 0, errno of the write, or kInterrupted. A message that had to be
// left unfinished (error, interrupt) stays as it is, and whoever writes next starts on a new line;
// one that lost its turn half-way (this process was stopped) is written again as a whole. On a
// non-blocking descriptor EAGAIN is waited out until nothing has moved for `timeout_ms`.
int write_message(Table& table, int fd, std::uint64_t key, std::string_view text,
                  std::int64_t timeout_ms, const Interrupt& interrupt, Abandoned& abandoned);

// The line that tells the user that a holder was left behind.
std::string abandoned_warning(const Abandoned& holder, std::int64_t timeout_ms);

}  // namespace oddrank::printing
