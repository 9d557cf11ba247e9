// Hand-made line tables, good and hostile: give CPython's lines, or none.
#include <gtest/gtest.h>

#include <random>

#include "trace/format/format.hpp"
#include "trace/read/dictionary.hpp"

namespace oddrank::trace {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Line = std::optional<std::uint32_t>;

constexpr std::uint32_t k310 = 0x030a0df0;
constexpr std::uint32_t k311 = 0x030b07f0;

// Returns a number below `end`; the same sequence on every machine.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : random_(seed) {}
  std::uint32_t below(std::uint64_t end) { return static_cast<std::uint32_t>(random_() % end); }
  std::uint8_t byte() { return static_cast<std::uint8_t>(below(256)); }

 private:
  std::mt19937 random_;
};

bool has_lines(std::uint32_t version, const Bytes& bytes, std::uint32_t first = 1) {
  const LineTable table(version, bytes, first);
  for (std::uint32_t offset = 0; offset < 4096; ++offset) {
    if (table.line_at(offset)) return true;
  }
  return false;
}

TEST(LineTable, offsets_inside_an_instruction_belong_to_it_and_far_ones_to_nothing) {
  const LineTable table(k311, Bytes{0x80 | 0 << 3, 0x12}, 7);
  EXPECT_EQ(table.line_at(1), 7U);
  EXPECT_FALSE(table.line_at(2));
  EXPECT_FALSE(table.line_at(0xffffffff));
  EXPECT_FALSE(has_lines(k310, {}));
  EXPECT_FALSE(has_lines(k311, {}));
}

TEST(LineTable, versions_that_it_does_not_know_have_no_lines) {
  const Bytes old = {4, 1}, now = {0x80, 0x12};
  EXPECT_TRUE(has_lines(k310, old));
  for (std::uint32_t version = 0x030b; version <= kNewestPython; ++version) {
    EXPECT_TRUE(has_lines(version << 16, now));
  }
  for (const std::uint32_t version : {0U, 0x0309U, kNewestPython + 1, 0x020aU, 0x040aU, 0xffffU}) {
    EXPECT_FALSE(has_lines(version << 16, old)) << version;
    EXPECT_FALSE(has_lines(version << 16, now)) << version;
  }
}

TEST(LineTable, one_wrong_entry_and_nothing_is_believed) {
  const Bytes good = {0x80, 0x12};
  const Bytes endings[] = {
      {0x00},                                                      // not the start of an entry
      {0x80},                                                      // no column
      {0x80, 0x80, 0x12},                                          // the next entry instead
      {0x80 | 10 << 3, 1},                                         // one column of two
      {0x80 | 13 << 3},                                            // no difference
      {0x80 | 13 << 3, 0x40},                                      // half of one
      {0x80 | 13 << 3, 0x40, 0x80, 0x12},                          // another half
      {0x80 | 13 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x04},        // 33 bits
      {0x80 | 13 << 3, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x00},  // longer than any number
      {0x80 | 14 << 3, 2, 0, 1},                                   // no last column
      {0x80, 0x12, 0x01},                                          // a byte too many
      {0x80 | 13 << 3, 5},                                         // line -1
      {0x80 | 13 << 3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x03},        // -2^31 and some
      {0x80 | 13 << 3, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x03},        // +2^31 - 1
  };
  EXPECT_TRUE(has_lines(k311, good));
  for (const Bytes& ending : endings) {
    Bytes bytes = good;
    bytes.insert(bytes.end(), ending.begin(), ending.end());
    EXPECT_FALSE(has_lines(k311, bytes)) << testing::PrintToString(ending);
  }
  EXPECT_FALSE(has_lines(k310, {4, 1, 4}));
  EXPECT_FALSE(has_lines(k310, {4, 1, 4, 0x90}));           // below line 0
  EXPECT_FALSE(has_lines(k310, {4, 1}, 0x7fffffff));        // above the last one
  EXPECT_FALSE(has_lines(k311, {0x80, 0x12}, 0xffffffff));  // no C int
}

TEST(LineTable, code_longer_than_an_offset_can_say_is_refused) {
  Bytes bytes(std::size_t{40} << 20, 0);
  for (std::size_t i = 0; i < bytes.size(); i += 2) bytes[i] = 0xff;  // 20 Mi times 255 bytes
  EXPECT_FALSE(has_lines(k310, bytes));
}

// Random bytes cause no crash and no endless loop, and only lines of 0..2^31-1. Almost valid tables
// reach further into the decoder than they.
TEST(LineTable, random_bytes_and_a_changed_cut_or_grown_table_never_hurt) {
  Dice dice(42);
  const Bytes good = {0x80 | 14 << 3, 3,    2, 1,    1,    0x81, 0x12, 0xd8, 5, 9,
                      0xe8,           0x48, 3, 0xf8, 0x83, 0};
  std::uint64_t resolved = 0;
  for (int round = 0; round < 80'000; ++round) {
    Bytes bytes = round % 2 == 0 ? Bytes(dice.below(60)) : good;
    std::uint32_t first = 1;
    if (round % 2 == 0) {
      for (auto& byte : bytes) byte = dice.byte();
      first = dice.below(4) != 0 ? dice.below(1000) : dice.below(1ULL << 32);
    } else {
      for (auto change = dice.below(3) + 1; change > 0; --change) {
        bytes[dice.below(bytes.size())] = dice.byte();
      }
      if (dice.below(2) != 0) bytes.resize(1 + dice.below(bytes.size()));
      if (dice.below(4) == 0) bytes.insert(bytes.end(), good.begin(), good.end());
    }
    for (const std::uint32_t version : {k310, k311}) {
      const LineTable table(version, bytes, first);
      const std::string text = table.without_columns(first);
      const LineTable shorter(version, Bytes(text.begin(), text.end()), first);
      for (std::uint32_t offset = 0; offset < 512; offset += 1 + dice.below(31)) {
        const Line line = table.line_at(offset);
        ASSERT_LE(line.value_or(0), 0x7fffffffU);
        if (version == k311) ASSERT_EQ(shorter.line_at(offset), line);
        resolved += line && round % 2 == 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(resolved, 10'000U) << "the bytes should sometimes be a table";
}

}  // namespace
}  // namespace oddrank::trace
