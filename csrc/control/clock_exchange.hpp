// How far the root's clock is from this host's: the bookkeeping of a guard, without sockets.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "control/messages.hpp"

namespace oddrank::control {

// Which CLOCK_MONOTONIC this process reads: the kernel's boot and the time namespace; empty where
// the kernel does not say. Copies of one virtual machine may have it in common.
std::string which_clock();

// The root's reading lies between our sending and our receiving: the offset is known to half the
// round trip, and of several exchanges the one with the shortest counts (F. Cristian,
// "Probabilistic clock synchronization", 1989). Bursts, since of exchanges that follow each other
// at once the later ones find both processes awake; several, since a burst may meet a busy moment;
// spread over the world, since all ranks ask at once and the root is one thread. Not thread-safe.
class ClockExchange {
 public:
  ClockExchange(int rank, int world, std::string own_clock)
      : rank_(rank), world_(world), own_clock_(std::move(own_clock)) {}

  // A new question of the worker; one that is open is forgotten.
  void ask(const ClockQuestion& question, std::int64_t now);
  // Whether the root should be asked now, for which begin() then gives the number.
  bool due(std::int64_t now) const noexcept { return open_ && !awaits_reply() && now >= next_ns_; }
  std::uint32_t begin(std::int64_t now) noexcept;
  bool awaits_reply() const noexcept { return awaited_ != 0; }
  // What the root says; readings that were not asked for change nothing.
  void hear(const ClockReading& reading, std::int64_t now);
  // The answer, once, with an empty `trouble` where there was any reading: after enough exchanges,
  // at the deadline, or if `is_last`: the root will not speak again.
  std::optional<ClockAnswer> answer(std::int64_t now, bool is_last);
  // Until due() or answer() may change without the root's doing; at least 0.
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
  std::uint32_t last_number_ = 0;  // never used again: a late reply belongs to no other exchange
  std::uint32_t awaited_ = 0;      // the exchange whose reply is to come; 0: none
  std::int64_t sent_ns_ = 0;
  int heard_ = 0;
  std::int64_t shortest_ns_ = kNone;  // round trip
  std::int64_t offset_ns_ = 0;
};

}  // namespace oddrank::control
