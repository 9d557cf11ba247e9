// The value check of collectives: its numbers, the bits of its dtypes, its loops over the data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

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
  const Table table(none, true);
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
