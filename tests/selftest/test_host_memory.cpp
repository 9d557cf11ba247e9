// The memory test finds every bit that does not keep its value.
#include <gtest/gtest.h>

#include <vector>

#include "os/error.hpp"
#include "selftest/host_tests.hpp"

namespace oddrank::selftest {
namespace {

constexpr std::uint64_t kSeed = 0x123456789ABCDEF0;

TEST(HostMemory, HealthyMemoryHasNoMismatch) {
  const MemoryResult result = verify_host_memory(1 << 20, kSeed);
  EXPECT_EQ(result.bytes, std::size_t{1} << 20);
  EXPECT_EQ(result.mismatches.count, 0U);
}

TEST(HostMemory, AnyFlippedBitIsFoundWhereItIs) {
  std::vector<std::uint64_t> words(10'000);
  for (std::size_t bit = 0; bit < 64; ++bit) {
    fill_pattern(words.data(), words.size(), kSeed, kPasses[0]);
    const std::size_t index = bit * 997 % words.size();
    words[index] ^= std::uint64_t{1} << bit;
    Mismatches found;
    find_mismatches(words.data(), words.size(), kSeed, kPasses[0], found);
    EXPECT_EQ(found.count, 1U);
    EXPECT_EQ(found.index, index);
    EXPECT_EQ(found.got ^ found.expected, std::uint64_t{1} << bit);
  }
}

TEST(HostMemory, AStuckBitIsFoundWhateverItsValue) {
  for (const std::uint64_t stuck : {std::uint64_t{0}, std::uint64_t{1} << 17}) {
    std::vector<std::uint64_t> words(64);
    Mismatches found;
    for (const Pass& pass : kPasses) {
      fill_pattern(words.data(), words.size(), kSeed, pass);
      words[5] = (words[5] & ~(std::uint64_t{1} << 17)) | stuck;
      find_mismatches(words.data(), words.size(), kSeed, pass, found);
    }
    EXPECT_EQ(found.count, kAllPasses / 2) << "each filling or its complement must see it";
    EXPECT_EQ(found.bits, std::uint64_t{1} << 17);
    EXPECT_EQ(found.index, 5U);
  }
}

TEST(HostMemory, AWriteToAnotherAddressIsFound) {
  std::vector<std::uint64_t> words(1 << 16);
  fill_pattern(words.data(), words.size(), kSeed, kPasses[0]);
  words[1 << 12] = words[1 << 15];
  Mismatches found;
  find_mismatches(words.data(), words.size(), kSeed, kPasses[0], found);
  EXPECT_EQ(found.count, 1U);
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

TEST(HostMemory, AWordThatLandedElsewhereTellsWhereItBelongs) {
  std::vector<std::uint64_t> words(1 << 10);
  fill_pattern(words.data(), words.size(), kSeed, kPasses[2]);
  words[3] = words[515];
  Mismatches found;
  find_mismatches(words.data(), words.size(), kSeed, kPasses[2], found);
  EXPECT_EQ(found.got, 515U);
}

TEST(HostMemory, YesterdaysPatternDoesNotFit) {
  std::vector<std::uint64_t> words(1000);
  fill_pattern(words.data(), words.size(), kSeed, kPasses[0]);
  Mismatches found;
  find_mismatches(words.data(), words.size(), kSeed + 1, kPasses[0], found);
  EXPECT_EQ(found.count, 1000U);
}

TEST(HostMemory, MoreThanThereIsIsRefusedInWords) {
  EXPECT_THROW(verify_host_memory(std::size_t{1} << 62, kSeed), SystemError);
  EXPECT_THROW(verify_host_memory(7, kSeed), Error);
}

}  // namespace
}  // namespace oddrank::selftest
