// From the ticks of a record to wall-clock time.
#pragma once

#include <cstdint>
#include <optional>

#include "trace/read/file.hpp"

namespace oddrank::trace {

// A straight line through the first and the last picture of the clocks.
//
// With one picture only, its own moment is known and the ticks' frequency is not: then nothing else
// is converted, since a guess of the frequency is wrong by seconds after minutes. A wall clock that
// was set between the two pictures bends the line; how long it is says span_ns().
class Clock {
 public:
  enum class Knows : std::uint8_t { kNothing, kOneMoment, kLine };

  Clock() = default;
  explicit Clock(const std::vector<ClockPicture>& pictures);

  Knows knows() const noexcept { return knows_; }
  // Nanoseconds of CLOCK_REALTIME; none where they can't be known.
  std::optional<std::int64_t> realtime_ns(std::uint64_t tsc) const noexcept;
  // The same from a frequency that the caller knows from elsewhere (another rank of this host).
  std::optional<std::int64_t> realtime_ns(std::uint64_t tsc, double ticks_per_ns) const noexcept;
  // 0 unless the line is known.
  double ticks_per_ns() const noexcept { return ticks_per_ns_; }
  // Between the two pictures, for who judges how good the line is.
  std::uint64_t span_ns() const noexcept { return span_ns_; }

 private:
  ClockPicture first_;
  std::uint64_t span_ns_ = 0;
  double ticks_per_ns_ = 0;
  Knows knows_ = Knows::kNothing;
};

}  // namespace oddrank::trace
