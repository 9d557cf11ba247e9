// The keeper: the process that the launcher started as the rank; the real rank is its child.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace oddrank::control {

// Waits until all children of this process have ended, then ends the way the child `rank` ended.
// Leaves a dead rank a zombie for 0.3 s, so that its guard can read how it died. Forwards the
// signals in `passed_on`, which must be blocked already, to the rank with their sender's pid. The
// kernel kills this process at `deadline_ns` (CLOCK_MONOTONIC) at the latest.
[[noreturn]] void keep(pid_t rank, std::int64_t deadline_ns, const std::vector<int>& passed_on);

}  // namespace oddrank::control
