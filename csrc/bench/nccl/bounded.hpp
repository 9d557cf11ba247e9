// Calls that may never return, waited for with a deadline.
#pragma once

#include <functional>

#include "base/clock.hpp"

namespace oddrank::nccl {

// Runs `call` in a thread of its own. True when it has ended in time; what it threw is thrown here.
// False: it is left to itself, so it must own (share) all that it touches. Throws Error where
// there is no thread to be had; `call` has not run then.
bool finished_by(Deadline deadline, std::function<void()> call);

}  // namespace oddrank::nccl
