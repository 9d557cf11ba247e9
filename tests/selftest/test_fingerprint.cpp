// Arithmetic in a fixed order ends in the same bits everywhere, and one wrong bit changes them.
#include <gtest/gtest.h>

#include <set>

#include "selftest/fingerprint.hpp"

namespace oddrank::selftest {
namespace {

TEST(Fingerprint, IsTheGoldenOneOnEveryMachine) {
  for (std::size_t i = 0; i < kUnitCount; ++i) {
    EXPECT_EQ(host_fingerprint(static_cast<Unit>(i)), kGolden[i]) << kUnits[i];
  }
}

TEST(Fingerprint, EachLaneOfEachUnitHasItsOwnBits) {
  std::set<std::uint64_t> seen;
  for (std::size_t i = 0; i < kUnitCount; ++i) {
    for (std::uint32_t lane = 0; lane < kFingerprintLanes; ++lane) {
      seen.insert(fingerprint_lane(static_cast<Unit>(i), lane));
    }
  }
  EXPECT_EQ(seen.size(), kUnitCount * kFingerprintLanes);
}

TEST(Fingerprint, OneBitOfOneLaneChangesTheWhole) {
  for (int bit = 0; bit < 64; ++bit) {
    std::uint64_t hash = 0;
    for (std::uint32_t lane = 0; lane < kFingerprintLanes; ++lane) {
      const std::uint64_t flip = lane == 17 ? std::uint64_t{1} << bit : 0;
      hash = fold(hash, fingerprint_lane(Unit::kInteger, lane) ^ flip);
    }
    EXPECT_NE(hash, kGolden[static_cast<std::size_t>(Unit::kInteger)]);
  }
}

}  // namespace
}  // namespace oddrank::selftest
