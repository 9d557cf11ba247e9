// Arithmetic in a fixed order ends in the same bits everywhere. The hashes that a GPU must give are
// computed here by another method.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <set>
#include <vector>

#include "selftest/gpu_tests.hpp"

namespace oddrank::selftest {
namespace {

using Lanes = std::array<std::uint64_t, kFingerprintLanes>;

std::uint64_t folded(const Lanes& lanes) {
  return std::accumulate(lanes.begin(), lanes.end(), std::uint64_t{0}, fold);
}

Lanes numbered() {
  Lanes lanes{};
  std::iota(lanes.begin(), lanes.end(), 0U);
  return lanes;
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

TEST(GpuFingerprint, OldArchitecturesLackFormatsOfTheirTensorCores) {
  // No bf16 and tf32 before 80, no int8 before 72.
  for (const auto& [code, lacking] : {std::pair{90, 0}, {80, 0}, {75, 2}, {70, 3}}) {
    std::size_t count = 0;
    for (std::size_t unit = 0; unit < kGpuUnitCount; ++unit) count += has_unit(unit, code) ? 1 : 0;
    EXPECT_EQ(count + lacking, kGpuUnitCount);
  }
}

TEST(GpuFingerprint, SharedMemoryIsFilledWholeInEveryRoundAndItsHashIsKnown) {
  Lanes lanes = numbered();
  for (std::uint32_t round = 0; round < kSharedRounds; ++round) {
    std::vector<std::uint64_t> words(kSharedWords);
    std::set<std::uint32_t> used;
    for (std::uint32_t i = 0; i < kSharedWords; ++i) {
      used.insert(shared_place(i, round));
      words[shared_place(i, round)] = shared_word(i, round);
    }
    EXPECT_EQ(used.size(), kSharedWords);
    for (std::uint32_t i = 0; i < kSharedWords; ++i) {
      auto& hash = lanes[i % kFingerprintLanes];
      hash = fold(hash, words[i]);
    }
  }
  EXPECT_EQ(folded(lanes), kGoldenShared);
}

// Returns one warp's sums, in integers.
std::array<std::int64_t, kTensorTile * kTensorTile> products(std::uint32_t warp) {
  std::array<std::int64_t, kTensorTile * kTensorTile> sums{};
  for (std::uint32_t round = 0; round < kTensorRounds; ++round) {
    for (std::uint32_t i = 0; i < kTensorTile; ++i) {
      for (std::uint32_t k = 0; k < kTensorTile; ++k) {
        const int left = tensor_element(tensor_row(warp, round, i), k);
        const std::uint64_t row = tensor_row(warp, round, kTensorTile + k);
        for (std::uint32_t j = 0; j < kTensorTile; ++j) {
          sums[i * kTensorTile + j] += left * tensor_element(row, j);
        }
      }
    }
  }
  return sums;
}

TEST(GpuFingerprint, TheHashOfTensorCoresIsKnownAndTheirSumsAreExactInAnyOrder) {
  Lanes lanes = numbered();
  std::int64_t most = 0;
  for (std::uint32_t warp = 0; warp < kTensorWarps; ++warp) {
    const auto sums = products(warp);
    for (std::uint32_t i = 0; i < sums.size(); ++i) {
      most = std::max(most, std::abs(sums[i]));
      const auto value = static_cast<float>(sums[i]);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      auto& hash = lanes[warp * 32 + i / 8];
      hash = fold(hash, bits);
    }
  }
  EXPECT_EQ(folded(lanes), kGoldenTensor);
  EXPECT_GT(most, 1000);
  EXPECT_LT(kTensorRounds * kTensorTile * 64, 1U << 24) << "floats hold all integers up to there";
}

TEST(GpuFingerprint, ItsFirstUnitsAreTheHosts) {
  for (std::size_t unit = 0; unit < kUnitCount; ++unit) {
    EXPECT_STREQ(kGpuUnits[unit], kUnits[unit]);
    EXPECT_EQ(gpu_golden(unit), kGolden[unit]);
  }
}

}  // namespace
}  // namespace oddrank::selftest
