// Hand-made line tables, good and hostile: give the lines that were written, or none.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trace/read/dictionary.hpp"

namespace oddrank::trace {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Line = std::optional<std::uint32_t>;

// Returns a number below `end`; the same sequence on every machine.
class Dice {
 public:
  explicit Dice(std::uint32_t seed) : random_(seed) {}
  std::uint32_t below(std::uint64_t end) { return static_cast<std::uint32_t>(random_() % end); }
  std::uint8_t byte() { return static_cast<std::uint8_t>(below(256)); }

 private:
  std::mt19937 random_;
};

bool has_lines(const Bytes& bytes, std::uint32_t first = 1) {
  const LineTable table(bytes, first);
  for (std::uint32_t offset = 0; offset < 4096; ++offset) {
    if (table.line_at(offset)) return true;
  }
  return false;
}

TEST(LineTable, gives_back_the_lines_that_were_appended) {
  const std::pair<std::uint32_t, Line> ranges[] = {
      {2, 7U}, {4, {}}, {300, 5U}, {2, 0U}, {100'000, 0x7fffffffU}, {2, {}}, {2, 1U}};
  LineTableWriter writer(7);
  for (const auto& [size, line] : ranges) writer.add(size, line);
  const std::string& bytes = writer.take();
  std::uint32_t start = 0;
  const LineTable table({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, 7);
  for (const auto& [size, line] : ranges) {
    EXPECT_EQ(table.line_at(start), line);
    EXPECT_EQ(table.line_at(start + size - 1), line);
    start += size;
  }
  EXPECT_FALSE(table.line_at(start));
  EXPECT_FALSE(table.line_at(0xffffffff));
  EXPECT_FALSE(has_lines({}));
}

TEST(LineTable, one_wrong_range_and_nothing_is_believed) {
  const Bytes good = {1, 1}, line_0 = {1, 2};
  const Bytes endings[] = {
      {1},        // no line
      {0x81},     // half a length
      {1, 0x83},  // half a line
      line_0,
      {1, 4},                                // line -1
      {1, 0xff, 0xff, 0xff, 0xff, 0x0f},     // 2^31 - 1 lines further
      {1, 0x80, 0x80, 0x80, 0x80, 0x80, 0},  // longer than any number
      {0xff, 0xff, 0xff, 0xff, 0x7f, 1},     // more code than an offset can say
      {0x80, 0x80, 0x80, 0x80, 0x80, 0, 1},
  };
  EXPECT_TRUE(has_lines(good));
  for (const Bytes& ending : endings) {
    Bytes bytes = good;
    bytes.insert(bytes.end(), ending.begin(), ending.end());
    EXPECT_EQ(has_lines(bytes), ending == line_0) << testing::PrintToString(ending);
  }
  EXPECT_TRUE(has_lines(good, 0x7fffffff));
  EXPECT_FALSE(has_lines(good, 0xffffffff));  // no C int
}

// Random bytes cause no crash and no endless loop, and only lines of 0..2^31-1. Almost valid tables
// reach further into the decoder than they.
TEST(LineTable, random_bytes_and_a_changed_cut_or_grown_table_never_hurt) {
  Dice dice(42);
  const Bytes good = {1, 1, 0x90, 1, 5, 2, 0, 3, 0x81, 0x82, 1, 1, 4, 1, 0};
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
    const LineTable table(bytes, first);
    for (std::uint32_t offset = 0; offset < 512; offset += 1 + dice.below(31)) {
      const Line line = table.line_at(offset);
      ASSERT_LE(line.value_or(0), 0x7fffffffU);
      resolved += line && round % 2 == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(resolved, 10'000U) << "the bytes should sometimes be a table";
}

}  // namespace
}  // namespace oddrank::trace
