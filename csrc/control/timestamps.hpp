// Timestamps of many collectives: begin and duration of each, with little overhead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "control/page.hpp"
#include "os/clock.hpp"
#include "os/error.hpp"

namespace oddrank::control {

// Between enter() and leave() the page shows the worker as waiting. The constructor allocates and
// touches all memory; collectives beyond it are dropped. The page must outlive it. One thread.
class Timestamps {
 public:
  static constexpr std::int64_t kMost = std::int64_t{1} << 26;

  // Throws Error if capacity is not 1 to kMost.
  Timestamps(Page& page, std::int64_t capacity) : page_(&page) {
    if (capacity < 1 || capacity > kMost) {
      throw Error("timestamps for " + std::to_string(capacity) + " collectives: 1 to " +
                  std::to_string(kMost) + " fit, take several");
    }
    starts_.resize(static_cast<std::size_t>(capacity));
    durations_.resize(static_cast<std::size_t>(capacity));
  }

  // Order: page, then timestamp; in leave() timestamp, then page. The time between the timestamps
  // is the collective's alone, and a rank that is stopped in between shows as waiting.
  void enter() noexcept {
    page_->enter_collective();
    entered_ns_ = monotonic_ns();
  }

  // Does nothing without enter().
  void leave() noexcept {
    const std::int64_t now = monotonic_ns();
    if (entered_ns_ == 0) return;
    page_->leave_collective();
    if (count_ < starts_.size()) {
      starts_[count_] = entered_ns_;
      durations_[count_] = now - entered_ns_;
      ++count_;
    } else {
      ++dropped_;
    }
    entered_ns_ = 0;
  }

  // The collectives that leave() recorded, in ns; starts are readings of CLOCK_MONOTONIC.
  std::size_t count() const noexcept { return count_; }
  std::uint64_t dropped() const noexcept { return dropped_; }
  const std::int64_t* starts() const noexcept { return starts_.data(); }
  const std::int64_t* durations() const noexcept { return durations_.data(); }

 private:
  Page* page_;
  std::int64_t entered_ns_ = 0;  // of the open collective; 0: none is open
  std::size_t count_ = 0;
  std::uint64_t dropped_ = 0;
  std::vector<std::int64_t> starts_, durations_;
};

}  // namespace oddrank::control
