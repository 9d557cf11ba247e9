// Strided tensors, blocks and their bytes, against copies made element by element.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "os/error.hpp"
#include "replicas/tensors.hpp"

namespace oddrank::replicas {
namespace {

using Bytes = std::vector<unsigned char>;
using Sizes = std::vector<std::int64_t>;

// Returns the elements in row-major order.
Bytes in_order(const Tensor& tensor) {
  Bytes made;
  std::int64_t count = 1;
  for (const std::int64_t size : tensor.sizes) count *= size;
  for (std::int64_t number = 0; number < count; ++number) {
    std::int64_t index = number, offset = 0;
    for (std::size_t i = tensor.sizes.size(); i-- > 0;) {
      offset += index % tensor.sizes[i] * tensor.strides[i];
      index /= tensor.sizes[i];
    }
    const auto* const element = reinterpret_cast<const unsigned char*>(tensor.data) +
                                static_cast<std::size_t>(offset) * tensor.element;
    made.insert(made.end(), element, element + tensor.element);
  }
  return made;
}

Tensor flat(const Bytes& data) {
  return {reinterpret_cast<std::uintptr_t>(data.data()), 1, {std::ssize(data)}, {1}};
}

Digest one(const Tensor& tensor) { return digest_tensors({tensor}, 1).front(); }

TEST(Tensors, AViewHasTheDigestOfItsCopy) {
  std::mt19937_64 dice(1);
  std::vector<std::uint64_t> memory(1 << 16);
  for (std::uint64_t& word : memory) word = dice();
  for (int repeat = 0; repeat < 400; ++repeat) {
    Tensor view;
    view.element = std::size_t{1} << dice() % 5;
    view.data = reinterpret_cast<std::uintptr_t>(memory.data()) + view.element * (dice() % 9);
    const std::size_t dimensions = dice() % 5;
    std::int64_t stride = static_cast<std::int64_t>(dice() % 3);
    for (std::size_t i = 0; i < dimensions; ++i) {
      const auto size = static_cast<std::int64_t>(dice() % 9);
      view.sizes.push_back(size);
      view.strides.push_back(dice() % 8 == 0 ? 0 : stride);
      stride = std::max<std::int64_t>(1, stride * size) + static_cast<std::int64_t>(dice() % 2);
    }
    for (std::size_t i = dimensions; i-- > 1;) {
      const std::size_t other = dice() % (i + 1);
      std::swap(view.sizes[i], view.sizes[other]);
      std::swap(view.strides[i], view.strides[other]);
    }
    const Bytes copy = in_order(view);
    EXPECT_EQ(one(view), one(flat(copy)));
    Bytes taken(copy.size());
    copy_bytes(view, 0, copy.size(), taken.data());
    EXPECT_EQ(taken, copy);
  }
}

TEST(Tensors, ALargeTransposedMatrixHasTheDigestOfItsCopy) {
  std::vector<std::uint16_t> memory(1000 * 701);
  std::iota(memory.begin(), memory.end(), std::uint16_t{0});
  const Tensor view{reinterpret_cast<std::uintptr_t>(memory.data()), 2, {701, 1000}, {1, 701}};
  const Digest known = one(flat(in_order(view)));
  for (const int threads : {1, 2, 5}) EXPECT_EQ(digest_tensors({view}, threads).front(), known);
}

TEST(Tensors, AnExpandedElementIsReadAsOftenAsItIsRepeated) {
  const std::uint32_t value = 7;
  const Tensor view{reinterpret_cast<std::uintptr_t>(&value), 4, {300, 41}, {0, 0}};
  EXPECT_EQ(one(view), one(flat(in_order(view))));
}

// 2^33 elements of one byte that is read again and again: offsets need 64 bits.
TEST(Tensors, MoreThanFourBillionElementsAreCounted) {
  const unsigned char value = 3;
  const auto address = reinterpret_cast<std::uintptr_t>(&value);
  const std::int64_t many = std::int64_t{1} << 33;
  const Tensor view{address, 1, {many}, {0}};
  const std::uint64_t last = static_cast<std::uint64_t>(many) - kChunkBytes;
  const auto blocks = digest_blocks(view, kChunkBytes, last, last + 1, 1);
  ASSERT_EQ(blocks.size(), 1U);
  const Bytes chunk(kChunkBytes, value);
  const Digest sums = chunk_digest(chunk_sums(chunk.data(), kChunkBytes), last / kChunkBytes);
  EXPECT_EQ(blocks[0], finish(sums, kChunkBytes));
  EXPECT_EQ(checked_bytes(view), std::uint64_t{1} << 33);
}

TEST(Tensors, OnlyTheChangedBlockDiffers) {
  Bytes data(10 * kChunkBytes + 17, 1);
  const auto blocks = [&] { return digest_blocks(flat(data), 2 * kChunkBytes, 0, data.size(), 2); };
  const auto before = blocks();
  ASSERT_EQ(before.size(), 6U);
  data[5 * kChunkBytes + 3] ^= 4;
  const auto after = blocks();
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(before[i] == after[i], i != 2) << i;
  const auto some = digest_blocks(flat(data), 2 * kChunkBytes, 4 * kChunkBytes, 6 * kChunkBytes, 1);
  ASSERT_EQ(some.size(), 1U);
  EXPECT_EQ(some[0], after[2]);
}

TEST(Tensors, ManyAtOnceHaveTheDigestsThatEachHasAlone) {
  std::vector<Bytes> all;
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < 300; ++i) all.emplace_back(i * i * 31 % 9000, i % 256);
  all.emplace_back(3'000'000, 1);
  for (const Bytes& data : all) tensors.push_back(flat(data));
  const auto together = digest_tensors(tensors, 4);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(together[i], one(tensors[i])) << i;
}

TEST(Tensors, EmptyOnesNeedNoMemory) {
  EXPECT_EQ(one({0, 4, {3, 0}, {0, 1}}), one({0, 2, {0}, {1}}));
  EXPECT_TRUE(digest_blocks({0, 4, {0}, {1}}, kChunkBytes, 0, 100, 1).empty());
  EXPECT_TRUE(digest_tensors({}, 4).empty());
}

TEST(Tensors, AScalarIsOneElement) {
  const double value = 1.5;
  const auto address = reinterpret_cast<std::uintptr_t>(&value);
  EXPECT_EQ(one({address, 8, {}, {}}), one({address, 8, {1, 1}, {5, 9}}));
}

TEST(Tensors, WhatIsNoTensorIsRefused) {
  const std::int64_t large = std::int64_t{1} << 40;
  const std::vector<Tensor> wrong{
      {8, 3, {1}, {1}},          {8, 0, {1}, {1}},
      {8, 32, {1}, {1}},         {8, 4, {1, 2}, {1}},
      {8, 4, {-1}, {1}},         {8, 4, {2}, {-1}},
      {0, 4, {2}, {1}},          {8, 4, {large, large}, {0, 0}},
      {8, 16, {large}, {large}}, {8, 4, {large, large, large, large}, {0, 0, 0, 0}},
  };
  for (const Tensor& tensor : wrong) EXPECT_THROW(one(tensor), Error);
  const Bytes data(10'000);
  EXPECT_THROW(digest_blocks(flat(data), 1000, 0, 1, 1), Error);
  EXPECT_THROW(digest_blocks(flat(data), 0, 0, 1, 1), Error);
  EXPECT_THROW(digest_blocks(flat(data), kChunkBytes, 8, 100, 1), Error);
  Bytes to(20'000);
  EXPECT_THROW(copy_bytes(flat(data), 0, 10'001, to.data()), Error);
  EXPECT_THROW(copy_bytes(flat(data), 9, 8, to.data()), Error);
}

}  // namespace
}  // namespace oddrank::replicas
