// The write loop: partial writes, interrupts, non-blocking pipes, lost turns.
#include "printing/writer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "os/clock.hpp"
#include "os/fd.hpp"

namespace oddrank::printing {
namespace {

constexpr int kSliceMs = 50;
constexpr int kLostTurn = -2;

thread_local Hold* innermost = nullptr;

bool would_block(int error) noexcept { return error == EAGAIN || error == EWOULDBLOCK; }

// Waits for room in a full descriptor. Returns 0, kInterrupted, or EAGAIN after timeout_ms.
int wait_for_room(int fd, std::int64_t timeout_ms, const Interrupt& interrupt) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  while (true) {
    // Once late it looks again: this process may have waited for a core while room was made.
    const bool late = deadline.passed();
    pollfd output{fd, POLLOUT, 0};
    if (::poll(&output, 1, std::min(kSliceMs, deadline.remaining_ms())) > 0) return 0;
    if (late) return EAGAIN;
    if (interrupt()) return kInterrupted;
  }
}

// Writes all of `text` and counts in `done`. `turn`: null if a caller further out holds the lock.
int write_all(const Turn* turn, int fd, std::string_view text, std::size_t& done,
              std::int64_t timeout_ms, const Interrupt& interrupt) {
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote > 0) {
      done += static_cast<std::size_t>(wrote);
      if (done < text.size() && turn != nullptr && !turn->still_mine()) return kLostTurn;
      continue;
    }
    const int error = wrote == 0 ? ENOSPC : errno;
    if (error == EINTR) {
      if (interrupt()) return kInterrupted;
    } else if (would_block(error)) {
      if (const int waited = wait_for_room(fd, timeout_ms, interrupt); waited != 0) return waited;
    } else {
      return error;
    }
    if (turn != nullptr && !turn->still_mine()) return kLostTurn;
  }
  return 0;
}

}  // namespace

Hold::Hold(Table& table, std::uint64_t key, Kind kind) noexcept
    : output_(output_of(table, key)), key_(key), kind_(kind), outer_(innermost) {
  innermost = this;
}

Hold::~Hold() { innermost = outer_; }

Hold* Hold::find(std::uint64_t key) noexcept {
  for (Hold* hold = innermost; hold != nullptr; hold = hold->outer_)
    if (hold->key_ == key) return hold;
  return nullptr;
}

bool Hold::has(const Output& output) noexcept {
  for (const Hold* hold = innermost; hold != nullptr; hold = hold->outer_)
    if (&hold->output_ == &output) return true;
  return false;
}

bool take(Turn& turn, int fd, const Interrupt& interrupt) {
  if (turn.try_take()) return true;
  while (!turn.wait(fd))
    if (interrupt()) return false;
  return true;
}

// A file can be asked for its last byte, through a descriptor of our own (ours may be write-only).
bool needs_new_line(int fd) noexcept {
  struct stat output {};
  if (::fstat(fd, &output) != 0 || !S_ISREG(output.st_mode)) return true;
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  const Fd again(::open(path.data(), O_RDONLY | O_CLOEXEC));
  char last = 0;
  if (!again || output.st_size == 0) return output.st_size != 0;
  return ::pread(again.get(), &last, 1, output.st_size - 1) != 1 || last != '\n';
}

int write_message(Table& table, int fd, std::uint64_t key, std::string_view text,
                  std::int64_t timeout_ms, const Interrupt& interrupt, Abandoned& abandoned) {
  if (Hold* outer = Hold::find(key); outer && outer->kind() == Hold::Kind::kWriting) {
    outer->later += text;
    return 0;
  }
  if (Hold::has(output_of(table, key))) {
    std::size_t done = 0;
    return write_all(nullptr, fd, text, done, timeout_ms, interrupt);
  }
  std::string later;
  int error = kLostTurn;
  while (error == kLostTurn) {
    Turn turn(table, key, timeout_ms);
    const bool taken = take(turn, fd, interrupt);
    if (turn.abandoned().pid != 0) abandoned = turn.abandoned();
    if (!taken) return kInterrupted;
    Hold hold(table, key, Hold::Kind::kWriting);
    const bool new_line = turn.after_cut() && needs_new_line(fd);
    std::size_t done = 0;
    error = new_line ? write_all(&turn, fd, "\n", done, timeout_ms, interrupt) : 0;
    const bool at_line_start = !new_line || done == 1;
    done = 0;
    if (error == 0) error = write_all(&turn, fd, text, done, timeout_ms, interrupt);
    // Whole: none or all of our message is there. A lost turn was marked as cut by its taker.
    turn.end(error == 0 || error == kLostTurn || (done == 0 && at_line_start));
    later += hold.later;
  }
  if (!later.empty()) {
    Abandoned ignored;
    static_cast<void>(write_message(table, fd, key, later, timeout_ms, interrupt, ignored));
  }
  return error;
}

std::string abandoned_warning(const Abandoned& holder, std::int64_t timeout_ms) {
  std::array<char, 200> text{};
  const char* why = "does not go on";
  if (holder.state == 'T') why = "is stopped";
  if (holder.state == 't') why = "is held by a debugger";
  if (holder.state == 'X') why = "is gone";
  std::snprintf(
      text.data(), text.size(),
      "oddrank: printflock: process %u %s and has held the print lock for %.3g s: going on "
      "without it (set ODDRANK_PRINT_TIMEOUT to wait longer; said once)\n",
      holder.pid, why, static_cast<double>(timeout_ms) / 1000);
  return text.data();
}

std::string prefix_lines(std::string_view text, std::string_view prefix, bool at_line_start) {
  std::string out;
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  out.reserve(text.size() + lines * prefix.size());
  while (!text.empty()) {
    if (at_line_start) out += prefix;
    const std::size_t end = text.find('\n');
    const std::size_t size = end == std::string_view::npos ? text.size() : end + 1;
    out += text.substr(0, size);
    text.remove_prefix(size);
    at_line_start = true;
  }
  return out;
}

}  // namespace oddrank::printing
