// Laps: when each of many collectives began and how long it took, without disturbing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"
#include "control/page.hpp"

namespace oddrank::control {

// Between enter() and leave() the worker shows as waiting for others. All memory is taken and
// touched at the start; what does not fit is counted. The page must live longer. One thread.
class Laps {
 public:
  static constexpr std::int64_t kMost = std::int64_t{1} << 26;

  // Throws Error where capacity is not 1 to kMost.
  Laps(Page& page, std::int64_t capacity);

  // Order: the page, then the stamp; in leave() the stamp, then the page. The time between the
  // stamps is the collective's alone, and who is stopped in between shows as waiting.
  void enter() noexcept {
    page_->enter_lap();
    entered_ns_ = monotonic_ns();
  }

  // Without enter(): nothing.
  void leave() noexcept {
    const std::int64_t now = monotonic_ns();
    if (entered_ns_ == 0) return;
    page_->leave_lap();
    if (count_ < starts_.size()) {
      starts_[count_] = entered_ns_;
      durations_[count_] = now - entered_ns_;
      ++count_;
    } else {
      ++dropped_;
    }
    entered_ns_ = 0;
  }

  // The laps that were left; nanoseconds, of CLOCK_MONOTONIC and between its readings.
  std::size_t count() const noexcept { return count_; }
  std::uint64_t dropped() const noexcept { return dropped_; }
  const std::int64_t* starts() const noexcept { return starts_.data(); }
  const std::int64_t* durations() const noexcept { return durations_.data(); }

 private:
  Page* page_;
  std::int64_t entered_ns_ = 0;  // of the open lap; 0: none
  std::size_t count_ = 0;
  std::uint64_t dropped_ = 0;
  std::vector<std::int64_t> starts_, durations_;
};

}  // namespace oddrank::control
