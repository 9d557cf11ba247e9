// The one object for time in C++ tests: a limit only ends a hang, and grows with slowness.
#pragma once

#include <chrono>
#include <cstdlib>
#include <thread>

namespace oddrank::patience {

// Seconds: for all that is not known to take long. Without tests/patience.py, which measures it,
// the machine is taken to be slow.
inline double limit() {
  const char* const slowness = std::getenv("ODDRANK_TEST_SLOWNESS");
  return 60 * (slowness == nullptr ? 10 : std::atof(slowness));
}

inline int limit_ms() { return static_cast<int>(limit() * 1000); }

// Returns whether `holds()` became true within `seconds`. It is called again after `pause`.
template <class Condition>
bool until(Condition holds, double seconds = limit(), std::chrono::microseconds pause = {}) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace oddrank::patience
