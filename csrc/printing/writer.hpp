// Writes a message to a descriptor as one piece, with a prefix before each line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "printing/lock.hpp"

namespace oddrank::printing {

// Called when a wait or a write was interrupted, perhaps with the turn held. Runs signal handlers
// and returns whether to stop.
struct Interrupt {
  bool (*run)(void* context);
  void* context;
  bool operator()() const { return run(context); }
};

inline constexpr int kInterrupted = -1;

// The locks that this thread holds, innermost first. A message that comes up while one is held (in
// a signal handler, in a write() written in Python) must neither wait for that lock, even where it
// is for another output that shares it, nor get into the middle of a line.
class Hold {
 public:
  enum class Kind : std::uint8_t { kWriting, kPython };
  Hold(Table& table, std::uint64_t key, Kind kind) noexcept;
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // The hold of this output, or null.
  static Hold* find(std::uint64_t key) noexcept;
  // Whether this thread holds the lock of `output`, be it for another output.
  static bool has(const Output& output) noexcept;
  Kind kind() const noexcept { return kind_; }
  std::string later;  // messages from inside a write, written after it

 private:
  const Output& output_;
  const std::uint64_t key_;
  const Kind kind_;
  Hold* const outer_;
};

// Waits for the turn. Returns false if `interrupt` said to stop.
bool take(Turn& turn, int fd, const Interrupt& interrupt);

// Returns whether the output may end in the middle of a line.
bool needs_new_line(int fd) noexcept;

// Writes the whole message. Returns 0, errno of the write, or kInterrupted. After an error or an
// interrupt the message stays unfinished, and the next one begins a new line. A message that lost
// its turn half-way (this process was stopped) is written again as a whole. If a non-blocking
// descriptor is full, waits until it has not moved for `timeout_ms`.
int write_message(Table& table, int fd, std::uint64_t key, std::string_view text,
                  std::int64_t timeout_ms, const Interrupt& interrupt, Abandoned& abandoned);

// Returns the warning that a holder was given up.
std::string abandoned_warning(const Abandoned& holder, std::int64_t timeout_ms);

// Returns `text` with `prefix` before every line, empty ones too; before the first one only if
// `at_line_start`. A newline at the end begins no line.
std::string prefix_lines(std::string_view text, std::string_view prefix, bool at_line_start);

}  // namespace oddrank::printing
