// Converts a record's ticks to wall-clock time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/read/file.hpp"

namespace oddrank::trace {

// Wall-clock time in nanoseconds; empty if unknown.
using Time = std::optional<std::int64_t>;

// A straight line through the first and the last reading of the clocks: ticks against the monotonic
// clock, which is never set. The last reading gives the wall-clock time, so a wall clock set in
// between (by NTP) does not bend the line.
//
// With only one reading the tick rate is unknown: only that moment is converted, since a guessed
// rate is wrong by seconds after minutes.
class Clock {
 public:
  enum class Knows : std::uint8_t { kNothing, kOneMoment, kLine };

  Clock() = default;
  explicit Clock(const std::vector<ClockPicture>& pictures);

  Knows knows() const noexcept { return knows_; }
  // Returns nanoseconds of CLOCK_REALTIME; empty if unknown.
  Time realtime_ns(std::uint64_t tsc) const noexcept;
  // Returns 0 unless the line is known.
  double ticks_per_ns() const noexcept { return ticks_per_ns_; }

 private:
  // One moment by both clocks; for a line the first reading's.
  std::uint64_t tsc_ = 0;
  std::int64_t realtime_ns_ = 0;
  double ticks_per_ns_ = 0;
  Knows knows_ = Knows::kNothing;
};

// Returns the record's clock readings, and one of now if it was written on this boot.
std::vector<ClockPicture> clock_pictures(const RecordFile& file);
inline Clock clock_of(const RecordFile& file) { return Clock(clock_pictures(file)); }

}  // namespace oddrank::trace
