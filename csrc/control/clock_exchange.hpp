// Measures the offset of the root's clock: a guard's bookkeeping, without sockets.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "control/messages.hpp"

namespace oddrank::control {

// Identifies the CLOCK_MONOTONIC that this process reads: boot id and time namespace; empty if the
// boot id is unreadable. Copies of a virtual machine may share it.
std::string which_clock();

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
  void ask(const ClockQuestion& question, std::int64_t now);
  // Whether to ask the root now, with the number from begin().
  bool due(std::int64_t now) const noexcept { return open_ && !awaits_reply() && now >= next_ns_; }
  std::uint32_t begin(std::int64_t now) noexcept;
  bool awaits_reply() const noexcept { return awaited_ != 0; }
  // Takes a reading of the root; ignores one that was not asked for.
  void hear(const ClockReading& reading, std::int64_t now);
  // Returns the answer once: after enough exchanges, at the deadline, or if `is_last` (no reading
  // will come). Its `trouble` is empty if there was any reading.
  std::optional<ClockAnswer> answer(std::int64_t now, bool is_last);
  // Returns the time until due() or answer() may change without a reading; at least 0.
  std::int64_t wait_ns(std::int64_t now) const noexcept;

 private:
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
