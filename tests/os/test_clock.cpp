// Deadlines of all doubles that a caller may give.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "os/clock.hpp"

namespace oddrank {
namespace {

TEST(Deadline, IsRangedForAnyNumberOfSeconds) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double seconds : {1e9, 1e10, 1e300, inf}) {
    const Deadline far = Deadline::after_seconds(seconds);
    EXPECT_GE(far.ns(), 900'000'000'000'000'000) << seconds;
    EXPECT_FALSE(far.passed()) << seconds;
  }
  for (const double seconds : {0.0, -1.0, -1e300, -inf, std::nan("")}) {
    EXPECT_TRUE(Deadline::after_seconds(seconds).passed()) << seconds;
  }
}

TEST(Deadline, IsNotEarlierThanAskedFor) {
  for (const double seconds : {2.01, 4.02, 8.19}) {
    const std::int64_t before = monotonic_ns();
    EXPECT_GE(Deadline::after_seconds(seconds).ns(), before + std::llround(seconds * 1e9));
  }
}

}  // namespace
}  // namespace oddrank
