// The memory test finds every bit that does not keep its value.
#include <gtest/gtest.h>

#include <vector>

#include "selftest/host_tests.hpp"

namespace oddrank::selftest {
namespace {

constexpr std::uint64_t kSeed = 0x123456789ABCDEF0;
using Words = std::vector<std::uint64_t>;

Words filled(std::size_t size, const Pass& pass = kPasses[0]) {
  Words words(size);
  fill_pattern(words.data(), size, kSeed, pass);
  return words;
}

Mismatches found_in(const Words& words, const Pass& pass = kPasses[0], std::uint64_t seed = kSeed) {
  Mismatches found;
  find_mismatches(words.data(), words.size(), seed, pass, found);
  return found;
}

TEST(HostMemory, AnyFlippedBitIsFoundWhereItIs) {
  for (std::size_t bit = 0; bit < 64; ++bit) {
    Words words = filled(10'000);
    const std::size_t index = bit * 997 % words.size();
    words[index] ^= std::uint64_t{1} << bit;
    const Mismatches found = found_in(words);
    EXPECT_EQ(found.count, 1U);
    EXPECT_EQ(found.index, index);
    EXPECT_EQ(found.got ^ found.expected, std::uint64_t{1} << bit);
  }
}

TEST(HostMemory, AStuckBitIsFoundWhateverItsValue) {
  for (const std::uint64_t stuck : {std::uint64_t{0}, std::uint64_t{1} << 17}) {
    Mismatches found;
    for (const Pass& pass : kPasses) {
      Words words = filled(64, pass);
      words[5] = (words[5] & ~(std::uint64_t{1} << 17)) | stuck;
      find_mismatches(words.data(), words.size(), kSeed, pass, found);
    }
    EXPECT_EQ(found.count, kAllPasses / 2) << "each filling or its complement must see it";
    EXPECT_EQ(found.bits, std::uint64_t{1} << 17);
    EXPECT_EQ(found.index, 5U);
  }
}

TEST(HostMemory, EveryPassSeesASpoiltWordAndSaysWhichItWas) {
  for (std::size_t pass = 0; pass < kAllPasses; ++pass) {
    const MemoryResult result = verify_host_memory(1 << 16, kSeed, kAllPasses, Damage{77, pass});
    EXPECT_EQ(result.mismatches.count, 1U);
    EXPECT_EQ(result.mismatches.index, 77U);
    EXPECT_EQ(result.mismatches.bits, 1U);
    EXPECT_STREQ(result.mismatches.pass, kPasses[pass].name);
  }
}

TEST(HostMemory, AWordThatLandedElsewhereIsFoundAndTellsWhereItBelongs) {
  for (const std::size_t pass : {0, 2}) {
    Words words = filled(1 << 16, kPasses[pass]);
    words[3] = words[1 << 15];
    const Mismatches found = found_in(words, kPasses[pass]);
    EXPECT_EQ(found.count, 1U);
    EXPECT_EQ(found.got == 1U << 15, pass == 2);
  }
  EXPECT_EQ(found_in(filled(1000), kPasses[0], kSeed + 1).count, 1000U) << "yesterday's pattern";
}

}  // namespace
}  // namespace oddrank::selftest
