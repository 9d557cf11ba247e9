// Fits the line and keeps it within what a clock can be.
#include "trace/read/clock.hpp"

#include <algorithm>
#include <cmath>

namespace oddrank::trace {
namespace {

// Real counters tick at 19.2 MHz (some arm64) up to some GHz: others are a broken file's.
constexpr double kSlowest = 0.001;
constexpr double kFastest = 100;

}  // namespace

Clock::Clock(const std::vector<ClockPicture>& pictures) {
  if (pictures.empty()) return;
  const auto [first, last] = std::ranges::minmax_element(pictures, {}, &ClockPicture::tsc);
  first_ = *first;
  knows_ = Knows::kOneMoment;
  if (last->tsc == first->tsc || last->realtime_ns <= first->realtime_ns) return;
  const std::uint64_t span = last->realtime_ns - first->realtime_ns;
  const double rate = static_cast<double>(last->tsc - first->tsc) / static_cast<double>(span);
  if (rate < kSlowest || rate > kFastest) return;
  span_ns_ = span;
  ticks_per_ns_ = rate;
  knows_ = Knows::kLine;
}

std::optional<std::int64_t> Clock::realtime_ns(std::uint64_t tsc) const noexcept {
  if (knows_ == Knows::kOneMoment && tsc == first_.tsc) return realtime_ns(tsc, 1);
  return realtime_ns(tsc, ticks_per_ns_);
}

std::optional<std::int64_t> Clock::realtime_ns(std::uint64_t tsc,
                                               double ticks_per_ns) const noexcept {
  const bool sensible = ticks_per_ns >= kSlowest && ticks_per_ns <= kFastest;
  if (knows_ == Knows::kNothing || !sensible) return std::nullopt;
  // The difference alone goes through floating point: a date in ns has more digits than a double.
  const bool later = tsc >= first_.tsc;
  const auto ticks = static_cast<double>(later ? tsc - first_.tsc : first_.tsc - tsc);
  const double away = std::round(ticks / ticks_per_ns);
  constexpr double kHalfRange = 4e18;  // both halves of an int64 together stay within it
  if (away > kHalfRange || static_cast<double>(first_.realtime_ns) > kHalfRange) {
    return std::nullopt;
  }
  const auto start = static_cast<std::int64_t>(first_.realtime_ns);
  const auto step = static_cast<std::int64_t>(away);
  return later ? start + step : start - step;
}

}  // namespace oddrank::trace
