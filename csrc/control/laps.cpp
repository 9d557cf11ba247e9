// Takes the memory of laps.
#include "control/laps.hpp"

#include <string>

#include "base/error.hpp"

namespace oddrank::control {

Laps::Laps(Page& page, std::int64_t capacity) : page_(&page) {
  if (capacity < 1 || capacity > kMost) {
    throw Error("laps for " + std::to_string(capacity) + " collectives: 1 to " +
                std::to_string(kMost) + " fit, take several");
  }
  starts_.resize(static_cast<std::size_t>(capacity));
  durations_.resize(static_cast<std::size_t>(capacity));
}

}  // namespace oddrank::control
