// Digests of tensors and blocks, against their definition and damaged copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "os/error.hpp"
#include "replicas/digest.hpp"

namespace oddrank::replicas {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes noise(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 dice(seed);
  Bytes made(bytes);
  std::generate(made.begin(), made.end(), [&] { return static_cast<unsigned char>(dice()); });
  return made;
}

Range flat(const Bytes& data) {
  return {reinterpret_cast<std::uintptr_t>(data.data()), 0, data.size()};
}

Digest one(const Bytes& data) { return digest_blocks({flat(data)}, 0, 1).front(); }

// The definition, word by word.
Digest by_definition(const Bytes& data) {
  Digest sum;
  for (std::size_t chunk = 0; chunk * 4096 < data.size(); ++chunk) {
    std::uint64_t low = 0, high = 0;
    const std::size_t end = std::min(data.size(), (chunk + 1) * 4096);
    for (std::size_t at = chunk * 4096; at < end; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, data.data() + at, std::min<std::size_t>(8, end - at));
      const std::size_t i = at % 4096 / 8;
      const auto product = [&](std::uint64_t key) {
        const std::uint64_t left = ((word & 0xFFFFFFFF) + (key & 0xFFFFFFFF)) & 0xFFFFFFFF;
        const std::uint64_t right = ((word >> 32) + (key >> 32)) & 0xFFFFFFFF;
        return left * right;
      };
      low += product(word_key(i));
      high += product(word_key(i + 4));
    }
    sum += chunk_digest({low, high}, chunk);
  }
  return finish(sum, data.size());
}

TEST(Digest, FollowsItsDefinitionAtAnyLengthWithAndWithoutAvx2) {
  for (const std::size_t length :
       {0, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 8192, 12295, 100'000, 3'000'001}) {
    const Bytes data = noise(length, length);
    for (const bool avx2 : {false, true}) {
      use_avx2(avx2);
      EXPECT_EQ(one(data), by_definition(data)) << length << " bytes, AVX2 " << avx2;
    }
  }
}

// Dumps are compared across versions: these bits never change.
TEST(Digest, HasTheSameBitsInEveryVersion) {
  Bytes data(10'000);
  std::iota(data.begin(), data.end(), static_cast<unsigned char>(0));
  const Digest known = one(data);
  EXPECT_EQ(known.low, 0xAAE91B61B4D9A20EU);
  EXPECT_EQ(known.high, 0xCD67B37E8F5BE16CU);
}

TEST(Digest, IsTheSameForAnyTilingOrderAndNumberOfThreads) {
  const Bytes data = noise(40 * kChunkBytes + 123, 1);
  const Digest whole = one(data);
  std::mt19937_64 dice(2);
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::vector<std::size_t> cuts{0, data.size()};
    for (int i = 0; i < 5; ++i) cuts.push_back(dice() % 41 * kChunkBytes);
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::size_t> tiles(cuts.size() - 1);
    std::iota(tiles.begin(), tiles.end(), 0U);
    std::shuffle(tiles.begin(), tiles.end(), dice);
    Digest sum;
    for (const std::size_t tile : tiles) {
      for (std::size_t at = cuts[tile]; at < cuts[tile + 1]; at += kChunkBytes) {
        const std::size_t length = std::min(kChunkBytes, cuts[tile + 1] - at);
        sum += chunk_digest(chunk_sums(data.data() + at, length), at / kChunkBytes);
      }
    }
    EXPECT_EQ(finish(sum, data.size()), whole);
  }
  const Bytes large = noise(5'000'003, 3);
  const Digest alone = one(large);
  for (const int threads : {2, 3, 8}) {
    EXPECT_EQ(digest_blocks({flat(large)}, 0, threads).front(), alone);
  }
}

TEST(Digest, DependsOnTheLengthTheSignOfZerosAndTheBitsOfNotANumbers) {
  EXPECT_NE(one(Bytes(8)).low, one(Bytes(7)).low);
  EXPECT_NE(one(Bytes(4096)).low, one(Bytes(4104)).low);
  EXPECT_NE(one({}).low, 0U);
  const auto of = [](std::uint64_t bits) {
    return digest_blocks({{reinterpret_cast<std::uintptr_t>(&bits), 0, 8}}, 0, 1).front();
  };
  const std::uint64_t nan = 0x7FF8'0000'0000'0000U;
  EXPECT_FALSE(of(0) == of(std::uint64_t{1} << 63));
  EXPECT_FALSE(of(nan | 1U) == of(nan | 2U));
  EXPECT_EQ(of(nan | 1U), of(nan | 1U));
}

// One way to damage data. It may by chance leave it as it was.
using Damage = std::function<void(Bytes&, std::mt19937_64&)>;

unsigned char bit(std::mt19937_64& dice, unsigned bits) {
  return static_cast<unsigned char>(1U << dice() % bits);
}

const std::vector<std::pair<std::string, Damage>>& damages() {
  static const std::vector<std::pair<std::string, Damage>> all{
      {"one bit", [](Bytes& data, auto& dice) { data[dice() % data.size()] ^= bit(dice, 8); }},
      {"the same bit of two words",
       [](Bytes& data, auto& dice) {
         const std::size_t words = data.size() / 8, in_word = dice() % 8;
         const unsigned char flipped = bit(dice, 8);
         for (int i = 0; i < 2; ++i) data[dice() % words * 8 + in_word] ^= flipped;
       }},
      {"swapped elements",
       [](Bytes& data, auto& dice) {
         const std::size_t element = std::size_t{1} << dice() % 5, count = data.size() / element;
         auto* const first = data.data() + dice() % count * element;
         auto* const other = data.data() + dice() % count * element;
         if (first != other) std::swap_ranges(first, first + element, other);
       }},
      {"shift",
       [](Bytes& data, auto& dice) {
         const auto by = static_cast<std::ptrdiff_t>(std::size_t{1} << dice() % 14);
         std::rotate(data.begin(), data.begin() + by, data.end());
       }},
      {"copied block",
       [](Bytes& data, auto& dice) {
         const std::size_t length = std::size_t{8} << dice() % 10, last = data.size() - length;
         std::memmove(data.data() + dice() % last, data.data() + dice() % last, length);
       }},
      {"sign of a float",
       [](Bytes& data, auto& dice) { data[dice() % (data.size() / 4) * 4 + 3] ^= 0x80U; }},
      {"exponent of a bfloat16",
       [](Bytes& data, auto& dice) { data[dice() % (data.size() / 2) * 2 + 1] ^= bit(dice, 7); }},
  };
  return all;
}

// No data is so regular that a change of it hides: noise, zeros, ones, ramps.
TEST(Digest, CatchesAHundredThousandRandomCorruptions) {
  std::vector<Bytes> all{noise(3 * kChunkBytes + 40, 5), Bytes(20'000), Bytes(20'000, 0xFF),
                         Bytes(20'000)};
  for (std::size_t i = 0; i < 5000; ++i) {
    const float value = static_cast<float>(i / 1000);
    std::memcpy(all[3].data() + 4 * i, &value, 4);
  }
  std::mt19937_64 dice(6);
  int unchanged = 0;
  for (Bytes& data : all) {
    const Bytes copy = data;
    const Digest known = one(data);
    for (int i = 0; i < 25'000; ++i) {
      const auto& [name, damage] = damages()[dice() % damages().size()];
      damage(data, dice);
      ASSERT_EQ(one(data) == known, data == copy) << name;
      unchanged += data == copy ? 1 : 0;
      data = copy;
    }
  }
  EXPECT_GT(unchanged, 0);  // swaps with itself
}

// Its last chunk alone has memory: numbers of chunks need more than 32 bits.
TEST(Tensors, TheEndOfATensorOf64TebibytesHasItsPlace) {
  const Bytes chunk(kChunkBytes, 3);
  const std::uint64_t last = std::uint64_t{1} << 46;
  const auto blocks =
      digest_blocks({{flat(chunk).address - last, last, last + kChunkBytes}}, kChunkBytes, 1);
  ASSERT_EQ(blocks.size(), 1U);
  const Digest sums = chunk_digest(chunk_sums(chunk.data(), kChunkBytes), last / kChunkBytes);
  EXPECT_EQ(blocks[0], finish(sums, kChunkBytes));
}

TEST(Tensors, OnlyTheChangedBlockDiffers) {
  Bytes data(10 * kChunkBytes + 17, 1);
  const auto blocks = [&] { return digest_blocks({flat(data)}, 2 * kChunkBytes, 2); };
  const auto before = blocks();
  ASSERT_EQ(before.size(), 6U);
  data[5 * kChunkBytes + 3] ^= 4;
  const auto after = blocks();
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(before[i] == after[i], i != 2) << i;
  const Range some{flat(data).address, 4 * kChunkBytes, 6 * kChunkBytes};
  EXPECT_EQ(digest_blocks({some}, 2 * kChunkBytes, 1), std::vector{after[2]});
}

TEST(Tensors, ManyAtOnceHaveTheDigestsThatEachHasAlone) {
  std::vector<Bytes> all;
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < 300; ++i) all.emplace_back(i * i * 31 % 9000, i % 256);
  all.emplace_back(3'000'000, 1);
  for (const Bytes& data : all) ranges.push_back(flat(data));
  const auto together = digest_blocks(ranges, 0, 4);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(together[i], one(all[i])) << i;
}

TEST(Tensors, EmptyOnesNeedNoMemory) {
  EXPECT_EQ(digest_blocks({{}}, 0, 1).front(), one({}));
  EXPECT_TRUE(digest_blocks({{}}, kChunkBytes, 1).empty());
  EXPECT_TRUE(digest_blocks({}, 0, 4).empty());
}

TEST(Tensors, WhatIsNoTensorIsRefused) {
  const Bytes data(10'000);
  const std::uintptr_t here = flat(data).address;
  EXPECT_THROW(digest_blocks({{0, 0, 8}}, 0, 1), Error);
  EXPECT_THROW(digest_blocks({{here, 8, 100}}, 0, 1), Error);
  EXPECT_THROW(digest_blocks({{here, kChunkBytes, 100}}, 0, 1), Error);
  EXPECT_THROW(digest_blocks({flat(data)}, 1000, 1), Error);
}

}  // namespace
}  // namespace oddrank::replicas
