// The digest against a plain one written by its definition, and against changed copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "os/error.hpp"
#include "replicas/tensors.hpp"

namespace oddrank::replicas {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes noise(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 dice(seed);
  Bytes made(bytes);
  std::generate(made.begin(), made.end(), [&] { return static_cast<unsigned char>(dice()); });
  return made;
}

Tensor flat(const void* data, std::size_t count, std::size_t element = 1) {
  return {reinterpret_cast<std::uintptr_t>(data), element, {static_cast<std::int64_t>(count)}, {1}};
}

Digest digest_of(const Bytes& data) {
  return digest_tensors({flat(data.data(), data.size())}, 1).front();
}

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

std::vector<std::size_t> lengths() {
  return {0, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 8192, 12295, 100'000, 3'000'001};
}

TEST(Digest, FollowsItsDefinitionAtAnyLengthWithAndWithoutAvx2) {
  for (const std::size_t length : lengths()) {
    const Bytes data = noise(length, length);
    for (const bool avx2 : {false, true}) {
      use_avx2(avx2);
      EXPECT_EQ(digest_of(data), by_definition(data)) << length << " bytes, AVX2 " << avx2;
    }
  }
}

// Dumps are compared across versions: these bits never change.
TEST(Digest, HasTheSameBitsInEveryVersion) {
  Bytes data(10'000);
  std::iota(data.begin(), data.end(), static_cast<unsigned char>(0));
  const Digest known = digest_of(data);
  EXPECT_EQ(known.low, 0xAAE91B61B4D9A20EU);
  EXPECT_EQ(known.high, 0xCD67B37E8F5BE16CU);
}

TEST(Digest, IsTheSameForAnyTilingOrderAndNumberOfThreads) {
  const Bytes data = noise(40 * kChunkBytes + 123, 1);
  const Digest whole = digest_of(data);
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
  const Digest alone = digest_of(large);
  for (const int threads : {2, 3, 8}) {
    EXPECT_EQ(digest_tensors({flat(large.data(), large.size())}, threads).front(), alone);
  }
}

TEST(Digest, DependsOnTheLength) {
  EXPECT_NE(digest_of(Bytes(8)).low, digest_of(Bytes(7)).low);
  EXPECT_NE(digest_of(Bytes(4096)).low, digest_of(Bytes(4104)).low);
  EXPECT_NE(digest_of({}).low, 0U);
}

TEST(Digest, TellsZerosByTheirSignAndNotANumbersByTheirBits) {
  const auto of = [](double value) {
    return digest_tensors({flat(&value, 1, sizeof value)}, 1).front();
  };
  const auto nan = [](std::uint64_t bits) {
    return std::bit_cast<double>(0x7FF8'0000'0000'0000U | bits);
  };
  EXPECT_FALSE(of(0.0) == of(-0.0));
  EXPECT_FALSE(of(nan(1)) == of(nan(2)));
  EXPECT_EQ(of(nan(1)), of(nan(1)));
}

// One way to damage data. It may by chance leave it as it was.
using Damage = std::function<void(Bytes&, std::mt19937_64&)>;

const std::vector<std::pair<std::string, Damage>>& damages() {
  static const std::vector<std::pair<std::string, Damage>> all{
      {"one bit",
       [](Bytes& data, auto& dice) {
         data[dice() % data.size()] ^= static_cast<unsigned char>(1U << dice() % 8);
       }},
      {"the same bit of two words",
       [](Bytes& data, auto& dice) {
         const std::size_t words = data.size() / 8, in_word = dice() % 8;
         const auto bit = static_cast<unsigned char>(1U << dice() % 8);
         data[dice() % words * 8 + in_word] ^= bit;
         data[dice() % words * 8 + in_word] ^= bit;
       }},
      {"swapped elements",
       [](Bytes& data, auto& dice) {
         const std::size_t element = std::size_t{1} << dice() % 5, count = data.size() / element;
         auto* const one = data.data() + dice() % count * element;
         auto* const other = data.data() + dice() % count * element;
         if (one != other) std::swap_ranges(one, one + element, other);
       }},
      {"shift",
       [](Bytes& data, auto& dice) {
         const auto by = static_cast<std::ptrdiff_t>(std::size_t{1} << dice() % 14);
         std::rotate(data.begin(), data.begin() + by, data.end());
       }},
      {"copied block",
       [](Bytes& data, auto& dice) {
         const std::size_t length = std::size_t{8} << dice() % 10;
         std::memmove(data.data() + dice() % (data.size() - length),
                      data.data() + dice() % (data.size() - length), length);
       }},
      {"sign of a float",
       [](Bytes& data, auto& dice) { data[dice() % (data.size() / 4) * 4 + 3] ^= 0x80U; }},
      {"exponent of a bfloat16",
       [](Bytes& data, auto& dice) {
         data[dice() % (data.size() / 2) * 2 + 1] ^= static_cast<unsigned char>(1U << dice() % 7);
       }},
  };
  return all;
}

TEST(Digest, CatchesAHundredThousandRandomCorruptions) {
  Bytes healthy = noise(3 * kChunkBytes + 40, 5);
  const Digest known = digest_of(healthy);
  const Bytes copy = healthy;
  std::mt19937_64 dice(6);
  int changed = 0, unchanged = 0;
  while (changed < 100'000) {
    const auto& [name, damage] = damages()[dice() % damages().size()];
    damage(healthy, dice);
    if (healthy == copy) {
      ASSERT_EQ(digest_of(healthy), known) << name << " that changed nothing";
      ++unchanged;
      continue;
    }
    ASSERT_FALSE(digest_of(healthy) == known) << name << " was missed";
    ++changed;
    healthy = copy;
  }
  EXPECT_GT(unchanged, 0);  // swaps with itself
}

// Zeros, ones, ramps: no data is so regular that a change of it hides.
TEST(Digest, CatchesCorruptionsOfRegularData) {
  std::vector<Bytes> all{Bytes(20'000), Bytes(20'000, 0xFF), Bytes(20'000)};
  for (std::size_t i = 0; i < 5000; ++i) {
    const float value = static_cast<float>(i / 1000);
    std::memcpy(all[2].data() + 4 * i, &value, 4);
  }
  std::mt19937_64 dice(7);
  for (Bytes& data : all) {
    const Bytes copy = data;
    const Digest known = digest_of(data);
    for (int i = 0; i < 3000; ++i) {
      damages()[dice() % damages().size()].second(data, dice);
      EXPECT_EQ(digest_of(data) == known, data == copy);
      data = copy;
    }
  }
}

}  // namespace
}  // namespace oddrank::replicas
