// Monotonic time and deadlines.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>

namespace oddrank {

// Nanoseconds in a millisecond.
inline constexpr std::int64_t kMs = 1'000'000;

// Nanoseconds of a clock of the system.
inline std::int64_t clock_ns(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Nanoseconds of CLOCK_MONOTONIC: comparable between processes of one host, not between hosts.
inline std::int64_t monotonic_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

// Nanoseconds of a duration in seconds, which a caller may have given: at most 31 years, 0 if it is
// negative or no number.
inline std::int64_t ns_of_seconds(double seconds) noexcept {
  return static_cast<std::int64_t>((seconds > 0 ? std::min(seconds, 1e9) : 0) * 1e9);
}

// A point in monotonic time. Every wait in oddrank has one.
class Deadline {
 public:
  Deadline() = default;  // passed
  static Deadline after_ms(std::int64_t milliseconds) noexcept {
    return Deadline(monotonic_ns() + milliseconds * kMs);
  }
  static Deadline after_seconds(double seconds) noexcept {
    return Deadline(monotonic_ns() + ns_of_seconds(seconds));
  }
  static Deadline at_ns(std::int64_t monotonic) noexcept { return Deadline(monotonic); }

  std::int64_t ns() const noexcept { return at_; }
  bool passed() const noexcept { return monotonic_ns() >= at_; }
  // Time left for poll() and kin, rounded up so that a wait never ends early; 0 once passed.
  int remaining_ms() const noexcept {
    const std::int64_t left = at_ - monotonic_ns();
    return left <= 0
               ? 0
               : static_cast<int>(std::min<std::int64_t>((left + 999'999) / 1'000'000, 1 << 30));
  }

 private:
  explicit Deadline(std::int64_t at) noexcept : at_(at) {}
  std::int64_t at_ = 0;
};

}  // namespace oddrank
