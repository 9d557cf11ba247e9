// Each form of time that a line of a log names.
#include <gtest/gtest.h>

#include <string_view>

#include "logs/timestamps.hpp"

namespace oddrank::logs {
namespace {

using Clock = Timestamp::Clock;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kReference = 1'767'312'000 * kSecond;  // 2026-01-02 00:00:00 UTC

void check(std::string_view line, std::int64_t ns, Clock clock, bool whole = false) {
  SCOPED_TRACE(std::string(line));
  const auto time = find_time(line, kReference);
  ASSERT_TRUE(time);
  EXPECT_EQ(time->ns, ns);
  EXPECT_EQ(time->clock, clock);
  EXPECT_EQ(time->whole_seconds, whole);
}

constexpr std::int64_t kNewYear = 1'767'225'600 * kSecond;  // 2026-01-01 00:00:00 UTC

TEST(Timestamps, IsoNamesItsZoneOrNot) {
  check("2026-01-01T00:00:00.5Z x", kNewYear + kSecond / 2, Clock::utc);
  check("2026-01-01T02:00:00+02:00 x", kNewYear, Clock::utc, true);
  check("2026-01-01 02:00:00 +0200 x", kNewYear, Clock::utc, true);
  check("2025-12-31 22:00:00.5-02", kNewYear + kSecond / 2, Clock::utc);
  check("[2026-01-01 00:00:00,123] x", kNewYear + 123'000'000, Clock::wall);
  check("  time      : 2026-01-01_00:00:00", kNewYear, Clock::wall, true);
  check("2026-01-01 00:00:00 - INFO", kNewYear, Clock::wall, true);
}

TEST(Timestamps, MonthDayYear) {
  check("[Jan 01 2026 00:00:00] [ERROR] [tid 7] x", kNewYear, Clock::wall, true);
  check("Thu Jan  1 00:00:00 CET 2026", kNewYear, Clock::wall, true);
  check("01/01/2026 00:00:00 [INFO|DP=0|PP=0]: x", kNewYear, Clock::wall, true);
  check("\x1b[32m01/01/2026 00:00:00 [INFO|DP=0]: x", kNewYear, Clock::wall, true);
  check("[rank0]: 12/31/2025 23:59:59.5 - INFO", kNewYear - kSecond / 2, Clock::wall);
  check("12/31/2025 11:59:59.5 PM x", kNewYear - kSecond / 2, Clock::wall);
  check("01/01/2026 12:00:00 AM x", kNewYear, Clock::wall, true);
  check("12/31/2025 12:00:00 PM x", kNewYear - 43'200 * kSecond, Clock::wall, true);
  EXPECT_FALSE(find_time("31/12/2025 23:59:59 x", kReference));  // day/month: which is which?
  EXPECT_FALSE(find_time("10/17/2025", kReference));
}

TEST(Timestamps, GlogNamesNoYear) {
  check("[E101 00:00:00.858931807 a.cpp:1]", kNewYear + 858'931'807, Clock::wall);
  check("[rank0]:W0101 00:00:00.261000 12 x", kNewYear + 261'000'000, Clock::wall);
  // 31 December lies behind the reference: it was the year before.
  check("[E1231 00:00:00.0 a.cpp:1]", kNewYear - 86'400 * kSecond, Clock::wall);
}

TEST(Timestamps, SyslogAndCtime) {
  check("Jan  1 00:00:00 node7 kernel: x", kNewYear, Clock::wall, true);
  check("Thu Jan  1 00:00:00 2026 x", kNewYear, Clock::wall, true);
}

TEST(Timestamps, SecondsSinceTheEpochOrBoot) {
  check("1767225600.25 x", kNewYear + kSecond / 4, Clock::utc);
  check("usage 1073741824.0 bytes 2026-01-01 00:00:00", kNewYear, Clock::wall, true);
  check("x [1767225600.25] y", kNewYear + kSecond / 4, Clock::utc);
  check("[   12.500000] x", 12 * kSecond + kSecond / 2, Clock::boot);
  EXPECT_FALSE(find_time("[1,3]<stdout>:step 5", 0));
  check("[1,3]<stdout>:2000-01-01 00:00:05 x", 946684805 * kSecond, Clock::wall, true);
}

TEST(Timestamps, NumbersAreNoTimes) {
  for (const std::string_view line :
       {"loss 1.25", "12:30:11", "2026-13-01 00:00:00", "E999 10:00:00.1", "v1767225600.25",
        "9999999999999.5", "May be 12:00:00", "", "1767225600", "[E4190 10:42:28"}) {
    SCOPED_TRACE(std::string(line));
    EXPECT_FALSE(find_time(line, kReference));
  }
}

}  // namespace
}  // namespace oddrank::logs
