// The value check of collectives: its numbers, and the bits of its dtypes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/verify/pattern.hpp"

namespace oddrank::bench::pattern_test {
namespace {

constexpr Dtype kAllDtypes[] = {Dtype::kFloat32,      Dtype::kFloat16,    Dtype::kBfloat16,
                                Dtype::kFloat8E4m3fn, Dtype::kFloat8E5m2, Dtype::kFloat64,
                                Dtype::kInt8,         Dtype::kInt32,      Dtype::kInt64,
                                Dtype::kUint8,        Dtype::kUint32,     Dtype::kUint64};
constexpr std::uint64_t kAll = 1 << 20;  // enough turns for every pattern
constexpr Op kReductions[] = {Op::kSum, Op::kMin, Op::kMax, Op::kAvg, Op::kProd};

// Reduces the contributions to a slot one after the other.
double reduced(const Pattern& pattern, Op op, std::uint32_t world, std::uint32_t slot) {
  double total = pattern.contribution(0, slot);
  for (std::uint32_t rank = 1; rank < world; ++rank) {
    const double value = pattern.contribution(rank, slot);
    if (op == Op::kMin) total = std::min(total, value);
    if (op == Op::kMax) total = std::max(total, value);
    if (op == Op::kProd) total *= value;
    if (op == Op::kSum || op == Op::kAvg) total += value;
  }
  return total;
}

TEST(VerifyDtypes, EveryNumberOfASmallFloatIsItsOwnBits) {
  for (const Dtype dtype :
       {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat8E4m3fn, Dtype::kFloat8E5m2}) {
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << (8 * traits(dtype).size); ++bits) {
      const double value = decode(dtype, bits);
      if (!std::isnan(value)) {
        EXPECT_EQ(encode(dtype, value), bits) << value;
      }
    }
  }
}

TEST(VerifyDtypes, TiesRoundToEven) {
  EXPECT_EQ(decode(Dtype::kBfloat16, encode(Dtype::kBfloat16, 257)), 256);
  EXPECT_EQ(decode(Dtype::kBfloat16, encode(Dtype::kBfloat16, 259)), 260);
  EXPECT_EQ(decode(Dtype::kFloat8E4m3fn, encode(Dtype::kFloat8E4m3fn, std::ldexp(1, -10))), 0);
  EXPECT_EQ(decode(Dtype::kFloat8E4m3fn, encode(Dtype::kFloat8E4m3fn, std::ldexp(3, -10))),
            std::ldexp(1, -8));
}

TEST(VerifyDtypes, IntegersKeepTheirSign) {
  for (const Dtype dtype : {Dtype::kInt8, Dtype::kInt32, Dtype::kInt64}) {
    EXPECT_EQ(decode(dtype, encode(dtype, -125)), -125);
    EXPECT_EQ(decode(dtype, encode(dtype, 125)), 125);
  }
}

TEST(VerifyDtypes, UnsignedIntegersHaveNoSign) {
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kUint32, Dtype::kUint64}) {
    const std::uint64_t most = ~std::uint64_t{0} >> (64 - 8 * traits(dtype).size);
    EXPECT_EQ(decode(dtype, most), static_cast<double>(most));
    EXPECT_EQ(decode(dtype, encode(dtype, 200)), 200);
  }
}

TEST(VerifyPattern, TheResultIsWhatTheContributionsComeTo) {
  for (const Dtype dtype : kAllDtypes) {
    for (const Op op : kReductions) {
      for (const std::uint32_t world : {1U, 2U, 3U, 7U, 8U, 64U, 200U}) {
        for (const std::uint64_t turn : {0U, 1U, 77U}) {
          const Pattern pattern(dtype, op, world, turn);
          for (std::uint32_t slot = 0; slot < kSlots; slot += 13) {
            double total = reduced(pattern, op, world, slot);
            if (op == Op::kAvg) total /= world;
            if (op == Op::kAvg && !traits(dtype).is_float()) total = std::floor(total);
            ASSERT_EQ(pattern.result(slot), total)
                << traits(dtype).name << " op " << static_cast<int>(op) << " world " << world;
          }
        }
      }
    }
  }
}

TEST(VerifyPattern, InTheLargestWorldTheResultIsStillWhatTheContributionsComeTo) {
  for (const Dtype dtype : kAllDtypes) {
    for (const Op op : kReductions) {
      const Pattern pattern(dtype, op, 16384, 5);
      for (std::uint32_t slot = 0; slot < kSlots; slot += 997) {
        double total = reduced(pattern, op, 16384, slot);
        if (op == Op::kAvg) total /= 16384;
        if (op == Op::kAvg && !traits(dtype).is_float()) total = std::floor(total);
        ASSERT_EQ(pattern.result(slot), total) << traits(dtype).name << static_cast<int>(op);
      }
    }
  }
}

TEST(VerifyPattern, EveryContributionIsExactInItsDtype) {
  for (const Dtype dtype : kAllDtypes) {
    for (const Op op : {Op::kSum, Op::kMin, Op::kMax, Op::kAvg, Op::kProd, Op::kNone}) {
      for (const std::uint32_t world : {1U, 8U, 100U, 16384U}) {
        const Pattern pattern(dtype, op, world, 3);
        for (std::uint32_t slot = 0; slot < kSlots; slot += 7) {
          const double value = pattern.contribution(slot % world, slot);
          ASSERT_EQ(decode(dtype, encode(dtype, value)), value) << traits(dtype).name;
        }
      }
    }
  }
}

TEST(VerifyPattern, RanksNextToEachOtherNeverMoveTheSameValue) {
  for (const Dtype dtype : kAllDtypes) {
    const Pattern pattern(dtype, Op::kNone, 1000, 0);
    for (std::uint32_t slot = 0; slot < kSlots; slot += 11) {
      for (std::uint32_t rank = 0; rank < 120; ++rank) {
        const std::uint32_t other = rank + 1;
        const bool new_draw = other % traits(dtype).moved_values == 0;
        if (!new_draw) {
          ASSERT_NE(pattern.contribution(rank, slot), pattern.contribution(other, slot));
        }
      }
    }
  }
}

TEST(VerifyPattern, OverTheTurnsEveryRankContributesToTheFirstElement) {
  for (const Dtype dtype : kAllDtypes) {
    for (const Op op : kReductions) {
      for (const std::uint32_t world : {1U, 2U, 7U, 64U, 1000U}) {
        const std::uint64_t needed = turns(dtype, op, world, 1, kAll);
        std::set<std::uint32_t> seen;
        for (std::uint64_t turn = 0; turn < needed; ++turn) {
          const Pattern pattern(dtype, op, world, turn);
          const double extreme = pattern.result(slot_of(0));
          for (std::uint32_t rank = 0; rank < world; ++rank) {
            const double value = pattern.contribution(rank, slot_of(0));
            const bool is_seen = op == Op::kMin || op == Op::kMax ? value == extreme
                                 : op == Op::kProd                ? value != 1
                                                                  : value != 0;
            if (is_seen) seen.insert(rank);
          }
        }
        EXPECT_EQ(seen.size(), world) << traits(dtype).name << " op " << static_cast<int>(op);
        EXPECT_LE(needed, world);
      }
    }
  }
}

TEST(VerifyPattern, MoreElementsNeedNoMoreTurns) {
  EXPECT_EQ(turns(Dtype::kFloat32, Op::kSum, 8, 4096, kAll), 1U);
  EXPECT_EQ(turns(Dtype::kFloat8E5m2, Op::kNone, 8, 1, kAll), 1U);
  std::uint64_t before = 16384;
  for (const std::uint64_t count : {1U, 10U, 100U, 1000U, 100000U}) {
    const std::uint64_t now = turns(Dtype::kFloat8E5m2, Op::kSum, 16384, count, kAll);
    EXPECT_LE(now, before);
    EXPECT_EQ(turns(Dtype::kFloat8E5m2, Op::kSum, 16384, count, 8),
              std::min<std::uint64_t>(now, 8));
    before = now;
  }
}

}  // namespace
}  // namespace oddrank::bench::pattern_test
