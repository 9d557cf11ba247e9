// Fits a line of ticks to the monotonic clock and shifts it to the last wall-clock reading.
#include "trace/read/record_clock.hpp"

#include <algorithm>
#include <cmath>

#include "os/clock.hpp"
#include "os/proc.hpp"
#include "trace/format/format.hpp"

namespace oddrank::trace {
namespace {

// Ticks per ns. Real counters run at 19.2 MHz (some arm64) to some GHz; others are a broken file's.
constexpr double kSlowest = 0.001;
constexpr double kFastest = 100;
constexpr std::uint64_t kHalfRange = 4'000'000'000'000'000'000;  // two of them fit into an int64

// Reads the clocks a few times and keeps the fastest reading: in the others this thread may have
// been interrupted between two clocks.
ClockPicture picture_of_now() noexcept {
  constexpr int kTries = 5;
  ClockPicture best;
  std::uint64_t least = ~std::uint64_t{0};
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t begin = read_tsc();
    const ClockPicture one{begin, static_cast<std::uint64_t>(monotonic_ns()),
                           static_cast<std::uint64_t>(clock_ns(CLOCK_REALTIME))};
    const std::uint64_t took = read_tsc() - begin;
    if (took >= least) continue;
    least = took;
    best = one;
  }
  return best;
}

}  // namespace

Clock::Clock(const std::vector<ClockPicture>& pictures) {
  if (pictures.empty()) return;
  const auto [first, last] = std::ranges::minmax_element(pictures, {}, &ClockPicture::tsc);
  if (last->realtime_ns > kHalfRange) return;
  tsc_ = last->tsc;
  realtime_ns_ = static_cast<std::int64_t>(last->realtime_ns);
  knows_ = Knows::kOneMoment;
  if (last->tsc == first->tsc || last->monotonic_ns <= first->monotonic_ns) return;
  const std::uint64_t span = last->monotonic_ns - first->monotonic_ns;
  const double rate = static_cast<double>(last->tsc - first->tsc) / static_cast<double>(span);
  if (rate < kSlowest || rate > kFastest || span > kHalfRange) return;
  tsc_ = first->tsc;
  realtime_ns_ -= static_cast<std::int64_t>(span);
  ticks_per_ns_ = rate;
  knows_ = Knows::kLine;
}

Time Clock::realtime_ns(std::uint64_t tsc) const noexcept {
  if (knows_ == Knows::kNothing) return std::nullopt;
  if (tsc == tsc_) return realtime_ns_;
  if (knows_ == Knows::kOneMoment) return std::nullopt;
  // Use floating point only for the difference: a date in ns has more digits than a double.
  const bool later = tsc > tsc_;
  const auto ticks = static_cast<double>(later ? tsc - tsc_ : tsc_ - tsc);
  const double away = std::round(ticks / ticks_per_ns_);
  if (away > static_cast<double>(kHalfRange)) return std::nullopt;
  const auto step = static_cast<std::int64_t>(away);
  return later ? realtime_ns_ + step : realtime_ns_ - step;
}

std::vector<ClockPicture> clock_pictures(const RecordFile& file) {
  std::vector<ClockPicture> pictures = file.clocks();
  // The counter runs until the machine reboots: with a reading of now, one picture gives a line.
  if (!pictures.empty() && is_this_boot(file.process().boot_id)) {
    pictures.push_back(picture_of_now());
  }
  return pictures;
}

}  // namespace oddrank::trace
