// Measures the offset of the root's clock: a guard's bookkeeping, without sockets.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "control/messages.hpp"
#include "os/proc.hpp"

namespace oddrank::control {

// Identifies the CLOCK_MONOTONIC that this process reads: boot id and time namespace; empty if the
// boot id is unreadable. Copies of a virtual machine may share it.
inline std::string which_clock() {
  const std::string boot = boot_id();
  if (boot.empty()) return {};
  std::array<char, 64> space{};  // stays empty before Linux 5.6, which has no time namespaces
  const ssize_t size = ::readlink("/proc/self/ns/time", space.data(), space.size());
  return boot + " " +
         std::string(space.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
}

// The root reads its clock between our send and our receive, so the offset is known to half the
// round trip; the exchange with the shortest round trip counts (F. Cristian, "Probabilistic clock
// synchronization", 1989). Exchanges come in bursts: the later ones of a burst find both processes
// awake. There are several bursts, since one may meet a busy moment. Ranks start at different
// times, since all ask at once and the root is one thread. Not thread-safe.
class ClockExchange {
 public:
  ClockExchange(int rank, int world, std::string own_clock)
      : rank_(rank), world_(world), own_clock_(std::move(own_clock)) {}

  // Starts on the worker's question; drops an open one.
  void ask(const ClockQuestion& question, std::int64_t now) {
    question_ = question;
    open_ = true;
    enough_ = false;
    awaited_ = 0;
    heard_ = 0;
    shortest_ns_ = kNone;
    // If the time is too short for this world size, shorten the gap: the root is busier and the
    // error larger, but every rank gets some exchanges.
    const std::int64_t most = std::max<std::int64_t>(question.deadline_ns - now, 0) / 4;
    gap_ns_ = std::min(std::max(kGapNs, world_ * kPaceNs * kBurst), most);
    next_ns_ = now + (world_ > 1 ? gap_ns_ / world_ * rank_ : 0);
  }
  // Whether to ask the root now, with the number from begin().
  bool due(std::int64_t now) const noexcept { return open_ && !awaits_reply() && now >= next_ns_; }
  std::uint32_t begin(std::int64_t now) noexcept {
    sent_ns_ = now;
    awaited_ = ++last_number_;
    if (awaited_ == 0) awaited_ = ++last_number_;
    return awaited_;
  }
  bool awaits_reply() const noexcept { return awaited_ != 0; }
  // Takes a reading of the root; ignores one that was not asked for.
  void hear(const ClockReading& reading, std::int64_t now) {
    if (!open_ || awaited_ == 0 || reading.number != awaited_) return;
    awaited_ = 0;
    ++heard_;
    next_ns_ = heard_ % kBurst == 0 ? now + gap_ns_ : now;
    const std::int64_t round_trip = std::max<std::int64_t>(now - sent_ns_, 0);
    if (round_trip < shortest_ns_) {
      shortest_ns_ = round_trip;
      offset_ns_ = reading.ns - (sent_ns_ + round_trip / 2);
    }
    const std::int64_t error = (round_trip + 1) / 2;
    const bool same = question_.shortcut && !own_clock_.empty() && reading.clock == own_clock_;
    // Check it against the reading: cloned virtual machines may share a boot id.
    if (same && offset_ns_ >= -error && offset_ns_ <= error) {
      shortest_ns_ = offset_ns_ = 0;
      enough_ = true;
    }
    enough_ = enough_ || heard_ >= kExchanges;
  }
  // Returns the answer once: after enough exchanges, at the deadline, or if `is_last` (no reading
  // will come). Its `trouble` is empty if there was any reading.
  std::optional<ClockAnswer> answer(std::int64_t now, bool is_last) {
    if (!open_ || !(enough_ || is_last || now >= question_.deadline_ns)) return std::nullopt;
    open_ = false;
    awaited_ = 0;
    ClockAnswer answer;
    answer.number = question_.number;
    if (heard_ == 0) {
      answer.trouble = "no reading came";
    } else {
      answer.offset_ns = offset_ns_;
      answer.error_ns = shortest_ns_ / 2 + shortest_ns_ % 2;
    }
    return answer;
  }
  // Returns the time until due() or answer() may change without a reading; at least 0.
  std::int64_t wait_ns(std::int64_t now) const noexcept {
    if (!open_) return kNone;
    const std::int64_t next = awaits_reply() ? kNone : next_ns_;
    return std::max<std::int64_t>(std::min(next, question_.deadline_ns) - now, 0);
  }

 private:
  static constexpr int kBurst = 4;
  static constexpr int kExchanges = 4 * kBurst;
  static constexpr std::int64_t kGapNs =
      2'000'000;  // at least; longer than a busy process holds a core
  // Time between two exchanges at the root, which answers each in a few microseconds.
  static constexpr std::int64_t kPaceNs = 20'000;

  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  std::int64_t rank_, world_;
  std::string own_clock_;
  ClockQuestion question_;
  bool open_ = false;
  bool enough_ = false;
  std::int64_t gap_ns_ = 0;        // between bursts
  std::int64_t next_ns_ = 0;       // when the next exchange may begin
  std::uint32_t last_number_ = 0;  // never reused: a late reply matches no other exchange
  std::uint32_t awaited_ = 0;      // number of the exchange in progress; 0: none
  std::int64_t sent_ns_ = 0;
  int heard_ = 0;
  std::int64_t shortest_ns_ = kNone;  // round trip
  std::int64_t offset_ns_ = 0;
};

}  // namespace oddrank::control
