// The value check of collectives: its numbers, the bits of its dtypes, its loops over the data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "bench/verify/pattern.hpp"
#include "bench/verify/verify.hpp"
#include "os/error.hpp"

namespace oddrank::bench {
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

TEST(VerifyDtypes, OnlySignedIntegersHaveASign) {
  for (const Dtype dtype : {Dtype::kInt8, Dtype::kInt32, Dtype::kInt64}) {
    EXPECT_EQ(decode(dtype, encode(dtype, -125)), -125);
    EXPECT_EQ(decode(dtype, encode(dtype, 125)), 125);
  }
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kUint32, Dtype::kUint64}) {
    const std::uint64_t most = ~std::uint64_t{0} >> (64 - 8 * traits(dtype).size);
    EXPECT_EQ(decode(dtype, most), static_cast<double>(most));
    EXPECT_EQ(decode(dtype, encode(dtype, 200)), 200);
  }
}

TEST(VerifyPattern, TheResultIsWhatTheContributionsComeTo) {
  for (const Dtype dtype : kAllDtypes) {
    for (const Op op : kReductions) {
      for (const std::uint32_t world : {1U, 2U, 3U, 7U, 8U, 64U, 200U, 16384U}) {
        for (const std::uint64_t turn : {0U, 1U, 77U}) {
          const Pattern pattern(dtype, op, world, turn);
          for (std::uint32_t slot = 0; slot<kSlots; slot += world> 200 ? 997 : 13) {
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

std::vector<std::byte> filled(const Segment& segment) {
  std::vector<std::byte> data(segment.bytes());
  fill(data.data(), segment);
  return data;
}

TEST(VerifySlots, ARunOfElementsIsTheSameWhereverItIsCut) {
  for (const std::uint64_t first :
       {std::uint64_t{0}, std::uint64_t{kSlots - 3}, (std::uint64_t{1} << 33) - 5}) {
    const auto whole = filled({Dtype::kInt32, Op::kNone, 3, 8, first, 3 * kSlots, 0});
    for (const std::uint64_t cut : {1U, 2U, 4092U, 4093U, 4094U, 9000U}) {
      const auto rest = filled({Dtype::kInt32, Op::kNone, 3, 8, first + cut, 3 * kSlots - cut, 0});
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(),
                             whole.begin() + static_cast<std::ptrdiff_t>(cut * 4)));
    }
  }
}

TEST(VerifyHost, AnyFlippedBitIsFoundWhereItIs) {
  for (const Dtype dtype : kAllDtypes) {
    const Segment segment{dtype, Op::kNone, 2, 4, (std::uint64_t{1} << 32) - 4500, 9000, 0};
    const auto right = filled(segment);
    EXPECT_EQ(check(right.data(), segment).wrong, 0U);
    const unsigned size = traits(dtype).size;
    for (std::size_t bit = 0; bit < std::size_t{8} * size; ++bit) {
      const std::size_t index = (bit * 997 + 1) % segment.count;
      auto data = right;
      data[index * size + bit / 8] ^= std::byte(1U << bit % 8);
      const Mismatch found = check(data.data(), segment);
      if (found.wrong == 0) {  // a zero changed its sign: both are equal
        EXPECT_TRUE(traits(dtype).is_float() && bit + 1 == size * 8U) << traits(dtype).name;
        EXPECT_EQ(Table::of_result(segment).value_at(segment.first + index), 0);
        continue;
      }
      EXPECT_EQ(found.wrong, 1U) << traits(dtype).name << " bit " << bit;
      EXPECT_EQ(found.index, static_cast<std::int64_t>(index));
      EXPECT_NE(found.expected, found.got);
    }
  }
}

TEST(VerifyHost, AddressesNeedNoAlignment) {
  for (const Dtype dtype : kAllDtypes) {
    const Segment segment{dtype, Op::kNone, 1, 8, 5, 5000, 0};
    std::vector<std::byte> room(segment.bytes() + 16, std::byte{0x5A});
    for (std::size_t shift = 0; shift < 8; ++shift) {
      std::fill(room.begin(), room.end(), std::byte{0x5A});
      fill(room.data() + shift, segment);
      EXPECT_EQ(check(room.data() + shift, segment).wrong, 0U);
      EXPECT_TRUE(std::equal(room.begin() + static_cast<std::ptrdiff_t>(shift + segment.bytes()),
                             room.end(),
                             std::vector<std::byte>(16 - shift, std::byte{0x5A}).begin()))
          << "wrote past its end";
    }
  }
}

TEST(VerifyHost, ANegativeZeroEqualsZeroAndNanEqualsNothing) {
  const Segment none{Dtype::kBfloat16, Op::kNone, 0, 1, 0, kSlots, 0};
  const Table table = Table::of_result(none);
  auto data = filled(none);
  std::uint64_t index = 0;
  while (index < kSlots && table.value_at(index) != 0) ++index;
  ASSERT_LT(index, kSlots);
  data[2 * index + 1] = std::byte{0x80};
  EXPECT_EQ(check(data.data(), none).wrong, 0U);
  data[2 * index + 1] = data[2 * index] = std::byte{0xFF};
  const Mismatch found = check(data.data(), none);
  EXPECT_EQ(found.wrong, 1U);
  EXPECT_TRUE(std::isnan(found.got));
}

TEST(VerifyHost, AnAverageMayBeTwoUnitsOffAndNoMore) {
  const Segment segment{Dtype::kFloat32, Op::kAvg, 0, 3, 0, 6000, 0};
  const Pattern pattern(segment.dtype, segment.op, segment.world, segment.turn);
  std::vector<float> data(segment.count);
  for (int off = -4; off <= 4; ++off) {
    for (std::uint64_t i = 0; i < segment.count; ++i) {
      auto value = static_cast<float>(pattern.result(slot_of(i)));
      const float to = off < 0 ? -1.0F : 100.0F;
      for (int step = 0; step < std::abs(off); ++step) value = std::nextafter(value, to);
      data[i] = value;
    }
    EXPECT_EQ(check(data.data(), segment).wrong, std::abs(off) <= 2 ? 0U : segment.count) << off;
  }
}

TEST(VerifyHost, NothingIsRightAndNullIsRefusedWhereThereIsSomething) {
  EXPECT_EQ(check(nullptr, {Dtype::kInt8, Op::kSum, 0, 2, 0, 0, 0}).index, -1);
  EXPECT_THROW(fill(nullptr, {Dtype::kInt8, Op::kSum, 0, 2, 0, 1, 0}), Error);
}

}  // namespace
}  // namespace oddrank::bench
