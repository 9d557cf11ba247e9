// The keeper: the process that a launcher takes for the rank, while the rank is its child.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace oddrank::control {

// Waits until all children of this process have ended, then ends it as `rank`, one of them, ended.
// A dead rank stays a zombie for a moment, so that its guard can read how it died. The signals in
// `passed_on`, which are to be blocked already, go on to the rank with their sender's pid.
// The kernel ends this process at `deadline_ns` (CLOCK_MONOTONIC) at the latest.
[[noreturn]] void keep(pid_t rank, std::int64_t deadline_ns, const std::vector<int>& passed_on);

}  // namespace oddrank::control
