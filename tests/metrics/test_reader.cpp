// Lines become rows of numbers: torn and endless ones, too. test_formats.py has each format.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>

#include "metrics/formats.hpp"
#include "metrics/reader.hpp"

namespace oddrank::metrics {
namespace {

std::deque<Row> read(const std::string& text, std::size_t chunk = 7) {
  Reader reader(0, 1'790'000'000'000'000'000);
  std::deque<Row> rows;
  for (std::size_t at = 0; at < text.size(); at += chunk) {
    reader.feed(std::string_view(text).substr(at, chunk), rows);
  }
  reader.finish(rows);
  return rows;
}

TEST(Numbers, NoWordIsOne) {
  for (const char* text :
       {"1e999", "-1e999", "1.5e-999", "9999999999999999999999", "1,234", "+2"}) {
    std::string_view left = text;
    double value = 0;
    EXPECT_TRUE(take_number(left, value)) << text;
    EXPECT_TRUE(left.empty()) << text;
  }
  for (const char* text : {"", "-", ".", "e5", "nothing", "na"}) {
    std::string_view left = text;
    double value = 7;
    EXPECT_FALSE(take_number(left, value)) << text;
    EXPECT_EQ(left, text);
  }
}

TEST(Reader, TheSizeOfChunksDoesNotMatter) {
  std::string text;
  for (int i = 1; i < 200; ++i) {
    text += std::string(static_cast<std::size_t>(i * 7), 'x') + "\nstep " + std::to_string(i) +
            "/200 | loss: 2.5 | dt: 10.00ms | tok/sec: 1\nsaving checkpoint at\n";
  }
  const std::deque<Row> whole = read(text, text.size());
  ASSERT_EQ(whole.size(), 398U);
  for (const std::size_t chunk : {1UL, 3UL, 64UL, 4096UL}) {
    const std::deque<Row> rows = read(text, chunk);
    ASSERT_EQ(rows.size(), whole.size()) << chunk;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(rows[i].line, whole[i].line);
      ASSERT_EQ(rows[i].kind, whole[i].kind);
    }
  }
}

TEST(Reader, OnlyTheFirstLineIsAHeader) {
  const std::string text = "log\rstep,loss\n7,2.5\r8,2.4\n";
  for (const std::size_t chunk : {1UL, 3UL, 64UL}) {
    EXPECT_TRUE(read(text, chunk).empty()) << chunk;
    EXPECT_EQ(read(text.substr(4), chunk).size(), 2U) << chunk;
  }
}

TEST(Reader, LinesOfAnotherFileCountFrom1) {
  Reader reader(0, 0);
  std::deque<Row> rows;
  reader.feed("one\ntwo\nhalf", rows);
  reader.begin_file(rows);
  reader.feed("one\niter 7: loss 2.5, time 1.00ms, mfu 1%\n", rows);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].line, 2U);
  EXPECT_EQ(reader.lines(), 5U);
}

TEST(Reader, EndlessAndTornLines) {
  std::string bars;
  for (int i = 0; i < 60'000; ++i) bars += "\r 10%|#   | 10/100 [00:10<01:30,  1.00s/it]";
  EXPECT_EQ(read(bars + "{'loss': 2.5}\n", 1 << 16).size(), 1U);
  std::string words;  // each of which is looked at only once: else this takes minutes
  while (words.size() < 8 << 20) words += "{'loss': x, step loss: 1 ";
  EXPECT_TRUE(read(words, 1 << 16).empty());
  const std::deque<Row> torn = read(
      "[rank0]:[titan] step:  2  loss:  7.1  memory: 1  tps: 1[rank1]:[titan] step:  2  loss:  7.2 "
      " memory: 1  tps: 1\n");
  ASSERT_EQ(torn.size(), 2U);
  EXPECT_EQ(torn[1][kLoss], 7.2);
  EXPECT_EQ(torn[1].rank, 1);
}

TEST(Formats, EachWordOfTheTableCanBeFound) {
  for (const std::string_view anchor : anchors()) EXPECT_GE(anchor.size(), 6U) << anchor;
  for (const Sign& sign : signs()) EXPECT_GE(sign.word.size(), 6U) << sign.word;
}

}  // namespace
}  // namespace oddrank::metrics
