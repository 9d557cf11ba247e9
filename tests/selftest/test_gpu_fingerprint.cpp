// The hashes that a GPU must give, computed here by another method.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>
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

TEST(GpuFingerprint, SharedMemoryIsFilledWholeInEveryRound) {
  for (std::uint32_t round = 0; round < kSharedRounds; ++round) {
    std::vector<bool> used(kSharedWords);
    for (std::uint32_t i = 0; i < kSharedWords; ++i) used[shared_place(i, round)] = true;
    EXPECT_EQ(std::count(used.begin(), used.end(), true), kSharedWords);
  }
}

TEST(GpuFingerprint, OldArchitecturesLackFormatsOfTheirTensorCores) {
  const auto units = [](int code) {
    std::size_t count = 0;
    for (std::size_t unit = 0; unit < kGpuUnitCount; ++unit) count += has_unit(unit, code) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(units(90), kGpuUnitCount);
  EXPECT_EQ(units(80), kGpuUnitCount);
  EXPECT_EQ(units(75), kGpuUnitCount - 2);  // no bf16, no tf32
  EXPECT_EQ(units(70), kGpuUnitCount - 3);  // no int8 either
}

TEST(GpuFingerprint, TheHashOfSharedMemoryIsKnown) {
  Lanes lanes = numbered();
  std::vector<std::uint64_t> words(kSharedWords);
  for (std::uint32_t round = 0; round < kSharedRounds; ++round) {
    for (std::uint32_t i = 0; i < kSharedWords; ++i) {
      words[shared_place(i, round)] = shared_word(i, round);
    }
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

TEST(GpuFingerprint, SumsOfTensorCoresAreExactInAnyOrder) {
  std::int64_t most = 0;
  for (std::uint32_t warp = 0; warp < kTensorWarps; ++warp) {
    for (const std::int64_t sum : products(warp)) most = std::max(most, std::abs(sum));
  }
  EXPECT_GT(most, 1000);
  EXPECT_LT(kTensorRounds * kTensorTile * 64, 1U << 24)
      << "a float holds every integer up to there";
}

TEST(GpuFingerprint, TheHashOfTensorCoresIsKnown) {
  Lanes lanes = numbered();
  for (std::uint32_t warp = 0; warp < kTensorWarps; ++warp) {
    const auto sums = products(warp);
    for (std::uint32_t i = 0; i < sums.size(); ++i) {
      const auto value = static_cast<float>(sums[i]);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      auto& hash = lanes[warp * 32 + i / 8];
      hash = fold(hash, bits);
    }
  }
  EXPECT_EQ(folded(lanes), kGoldenTensor);
}

TEST(GpuFingerprint, ItsFirstUnitsAreTheHosts) {
  for (std::size_t unit = 0; unit < kUnitCount; ++unit) {
    EXPECT_STREQ(kGpuUnits[unit], kUnits[unit]);
    EXPECT_EQ(gpu_golden(unit), kGolden[unit]);
  }
}

}  // namespace
}  // namespace oddrank::selftest
