// The value check of collectives: its loops over the data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

Segment segment_of(Dtype dtype, Op op, std::uint32_t source, std::uint32_t world,
                   std::uint64_t first, std::uint64_t count, std::uint64_t turn = 0) {
  return {dtype, op, source, world, first, count, turn};
}

std::vector<std::byte> filled(const Segment& segment) {
  std::vector<std::byte> data(segment.bytes());
  fill(data.data(), segment);
  return data;
}

TEST(VerifySlots, ARunOfElementsIsTheSameWhereverItIsCut) {
  for (const std::uint64_t first :
       {std::uint64_t{0}, std::uint64_t{kSlots - 3}, (std::uint64_t{1} << 33) - 5}) {
    const auto whole = filled(segment_of(Dtype::kInt32, Op::kNone, 3, 8, first, 3 * kSlots));
    for (const std::uint64_t cut : {1U, 2U, 4092U, 4093U, 4094U, 9000U}) {
      const auto rest =
          filled(segment_of(Dtype::kInt32, Op::kNone, 3, 8, first + cut, 3 * kSlots - cut));
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(),
                             whole.begin() + static_cast<std::ptrdiff_t>(cut * 4)));
    }
  }
}

TEST(VerifySlots, IndicesAbove32BitsHaveValuesOfTheirOwn) {
  const std::uint64_t wrap = std::uint64_t{1} << 32;
  for (const std::uint64_t first : {wrap / 2, wrap, 2 * wrap}) {
    EXPECT_NE(filled(segment_of(Dtype::kFloat32, Op::kSum, 0, 8, 0, 100)),
              filled(segment_of(Dtype::kFloat32, Op::kSum, 0, 8, first, 100)));
    const Segment segment = segment_of(Dtype::kFloat32, Op::kNone, 1, 8, first, 10000);
    auto data = filled(segment);
    EXPECT_EQ(check(data.data(), segment).wrong, 0U);
    data[4 * 7777] ^= std::byte{1};
    EXPECT_EQ(check(data.data(), segment).index, 7777);
  }
}

TEST(VerifyHost, AnyFlippedBitIsFoundWhereItIs) {
  for (const Dtype dtype : kAllDtypes) {
    const Segment segment = segment_of(dtype, Op::kNone, 2, 4, 12345, 9000);
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
    const Segment segment = segment_of(dtype, Op::kNone, 1, 8, 5, 5000);
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
  const Segment none = segment_of(Dtype::kBfloat16, Op::kNone, 0, 1, 0, kSlots);
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
  const Segment segment = segment_of(Dtype::kFloat32, Op::kAvg, 0, 3, 0, 6000);
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
  EXPECT_EQ(check(nullptr, segment_of(Dtype::kInt8, Op::kSum, 0, 2, 0, 0)).index, -1);
  EXPECT_THROW(fill(nullptr, segment_of(Dtype::kInt8, Op::kSum, 0, 2, 0, 1)), Error);
}

TEST(VerifySegment, WhatItCanNotBeIsRefusedInWords) {
  EXPECT_THROW(make_segment("float33", "sum", 0, 1, 0, 1, 0), Error);
  EXPECT_THROW(make_segment("float32", "mul", 0, 1, 0, 1, 0), Error);
  EXPECT_THROW(make_segment("float32", "sum", 2, 2, 0, 1, 0), Error);
  EXPECT_THROW(make_segment("float32", "sum", 0, 0, 0, 1, 0), Error);
  EXPECT_THROW(make_segment("float32", "sum", 0, 1, -1, 1, 0), Error);
  EXPECT_THROW(make_segment("float32", "sum", 0, 1, 0, -1, 0), Error);
}

}  // namespace
}  // namespace oddrank::bench
