// Scanning: words, writers, torn and endless lines, tracebacks, limits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "../words.hpp"
#include "hostile_lines.hpp"
#include "logs/scanner.hpp"
#include "os/error.hpp"

namespace oddrank::logs {
namespace {

Scan scan(const std::string& text, std::vector<Needle> words, Limits limits = {},
          std::size_t chunk = 7) {
  return scan_text(text, Needles(std::move(words)), limits, chunk);
}

// Line, rank, task and text of each match.
std::string show(const Scan& found) {
  return each(
      found.matches, &Match::line, [](const Match& match) { return match.writer.rank; },
      [](const Match& match) { return match.writer.task; }, &Match::text);
}

TEST(Scanner, FindsWordsWithTheirLinesAndWriters) {
  const Scan found =
      scan("one\n[rank3]: Watchdog caught it\r\ntwo\n4: Killed", {{"Killed"}, {"Watchdog"}});
  EXPECT_EQ(show(found), "2 3 -1 Watchdog caught it, 4 -1 4 Killed");
  EXPECT_EQ(each(found.matches, &Match::needle), "1, 0");
  EXPECT_EQ(found.lines, 4U);
  EXPECT_EQ(each(found.speakers, &Speaker::last_line), "2, 4");
  const std::string number(40, '6');
  const struct {
    const char* why;
    std::string log, matches;
  } rows[] = {
      {"carriage returns end pieces", "7: 1%\r2%\r[rank4]: Killed\r3% Killed\n",
       "1 4 -1 Killed, 1 -1 7 3% Killed"},
      {"a torn line is two matches", "[rank1]:[E] Killed a[rank2]:[E] Killed b\n",
       "1 1 -1 [E] Killed a, 1 2 -1 [E] Killed b"},
      {"a number too long for a rank is text", "[rank" + number + "]: Killed\n",
       "1 -1 -1 [rank" + number + "]: Killed"},
      {"also in a torn line", "[rank1]: Killed [rank" + number + "]: Killed\n",
       "1 1 -1 Killed , 1 -1 -1 [rank" + number + "]: Killed"},
      {"no control character comes out", std::string("\x1b[31mKilled\x1b[0m \0 \x07!\n", 22),
       "1 -1 -1 Killed  !"},
      {"of several ranks, tracebacks don't mix",
       "[rank0]: Traceback\n[rank1]: Traceback\n[rank0]:   File \"a\"\n[rank1]:   File \"b\"\n"
       "noise\n[rank1]: ValueError: 1\n[rank0]: ValueError: 0\n[rank0]: noise\n",
       "1 0 -1 Traceback, 2 1 -1 Traceback, 3 0 -1   File \"a\", 4 1 -1   File \"b\", "
       "6 1 -1 ValueError: 1, 7 0 -1 ValueError: 0"},
      {"a traceback behind a prefix that nobody knows",
       "<03:00:01> Traceback\n<03:00:01>   File \"a\"\nother: step 7\n<03:00:02>     f()\n"
       "<03:00:02> ValueError: no\n<03:00:02> more\n",
       "1 -1 -1 <03:00:01> Traceback, 2 -1 -1   File \"a\", 4 -1 -1     f(), "
       "5 -1 -1 ValueError: no"},
      {"spaces in front of a word are no prefix", "  Traceback\n    File\n  ValueError: no\nx\n",
       "1 -1 -1   Traceback, 2 -1 -1     File, 3 -1 -1   ValueError: no, 4 -1 -1 x"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(show(scan(row.log, {{"Killed"}, {"Traceback", 400}})), row.matches) << row.why;
  }
}

TEST(Scanner, FindsWhatASimpleSearchFinds) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<Needle> words{{"abab"}, {"babba"}, {"abba"}, {"aaaa"}, {"bbbbbbbb"}};
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 60, ' ');
    for (char& c : text) c = random() % 2 == 0 ? 'a' : 'b';
    const Needles needles(words);
    std::size_t expected = Needles::kNone;
    for (std::size_t i = words.size(); i-- > 0;) {
      if (text.find(words[i].text) != std::string::npos) expected = i;
    }
    ASSERT_EQ(needles.in(text), expected) << text;
    ASSERT_EQ(needles.any_in(text), expected != Needles::kNone) << text;
  }
}

TEST(Scanner, TheSizeOfChunksDoesNotMatter) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += std::string(static_cast<std::size_t>(i), 'x') + "Killed\n";
  for (const std::size_t chunk : {1UL, 2UL, 63UL, 4096UL, 1UL << 20}) {
    const Scan found = scan(text, {{"Killed"}}, {}, chunk);
    ASSERT_EQ(found.matches.size(), 300U);
    EXPECT_EQ(found.matches[299].line, 300U);
  }
}

TEST(Scanner, ALineWithoutEndIsScannedInPieces) {
  Limits limits;
  limits.line = 1000;
  limits.text = 100;
  std::string text(50'000, 'x');
  text.replace(997, 6, "Killed");  // across the border of two pieces
  text.replace(40'000, 6, "Killed");
  const Scan found = scan(text + "\nnext Killed\n", {{"Killed"}}, limits, 64);
  ASSERT_EQ(found.matches.size(), 3U);
  EXPECT_EQ(found.matches[1].line, 1U);
  EXPECT_EQ(found.matches[2].line, 2U);
  EXPECT_NE(found.matches[1].text.find("Killed"), std::string::npos);
  EXPECT_LE(found.matches[1].text.size(), 100U);
  std::string other(3000, 'x');
  other.replace(984, 6, "Killed");  // the longer word makes the overlap longer than this one
  EXPECT_EQ(scan(other, {{"Killed"}, {"a word that is longer than the other"}}, limits, 64)
                .matches.size(),
            1U);
}

// As in the cutting of lines: with a word to look for behind each of them, too.
TEST(Scanner, HostileLinesAreScannedInLinearTime) {
  for (const char* word : {"", "Killed"}) {
    each_hostile_line(word, [](const std::string& line) {
      const Scan found = scan(line + "\n" + line, {{"Killed"}}, {}, 1 << 18);
      EXPECT_EQ(found.lines, 4U);
    });
  }
}

TEST(Scanner, AnEmptyLineWithACarriageReturnHasAWriter) {
  const Scan found = scan("12:\r\n", {{"Killed"}});
  ASSERT_EQ(found.speakers.size(), 1U);
  EXPECT_EQ(found.speakers[0].writer.task, 12);
}

// A rank that dies in its traceback writes nothing that would end it.
TEST(Scanner, ManyTracebacksMayStayOpen) {
  std::string text;
  for (int i = 0; i < 6000; ++i) text += "[rank" + std::to_string(i) + "]: Traceback\n";
  for (int i = 0; i < 6000; ++i) text += "[rank" + std::to_string(i) + "]:   File\n";
  Limits limits;
  limits.matches = 20'000;
  const Scan found = scan(text, {{"Traceback", 10}}, limits, 1 << 16);
  EXPECT_EQ(found.matches.size(), 12'000U);
  EXPECT_EQ(found.left_out, 0U);
}

TEST(Scanner, WhatFollowsIsBounded) {
  std::string text = "Traceback\n";
  for (int i = 0; i < 100; ++i) text += "  deep\n";
  EXPECT_EQ(scan(text, {{"Traceback", 10}}).matches.size(), 11U);
  EXPECT_EQ(scan("Last error:\na\nb\nc\n", {{"Last error:", -2}}).matches.size(), 3U);
}

TEST(Scanner, OfTooManyMatchesTheFirstAndLastStay) {
  std::string text;
  for (int i = 1; i <= 1000; ++i) text += "Killed " + std::to_string(i) + "\n";
  Limits limits;
  limits.matches = 10;
  const Scan found = scan(text + "other\n", {{"Killed"}, {"other"}}, limits);
  ASSERT_EQ(found.matches.size(), 11U);
  EXPECT_EQ(found.matches[4].line, 5U);
  EXPECT_EQ(found.matches[5].line, 996U);
  EXPECT_EQ(found.left_out, 990U);
}

TEST(Scanner, TheNumbersOfSpeakersAndOfWordsAreBounded) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "[rank" + std::to_string(i) + "]: x\n";
  Limits limits;
  limits.speakers = 10;
  const Scan found = scan(text, {{"nothing"}}, limits);
  EXPECT_EQ(found.speakers.size(), 10U);
  EXPECT_THROW(Needles({{"abc"}}), Error) << "too short";
  EXPECT_THROW(Needles(std::vector<Needle>(Needles::kMost + 1, {"word"})), Error) << "too many";
}

TEST(Scanner, OnlyRangesOfLinesAreLookedAtIfAskedFor) {
  char path[] = "/tmp/oddrank-scan-XXXXXX";
  const int fd = mkstemp(path);
  std::string text;
  for (int i = 1; i <= 100'000; ++i) text += "[rank1]: word " + std::to_string(i) + "\n";
  text += "word, and no end of its line";
  ASSERT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(fd);
  const struct {
    std::vector<LineRange> ranges;
    std::string lines;
  } rows[] = {
      {{{1, 2}}, "1, 2"},
      {{{2, 2}, {4, 5}, {99'999, 200'000}}, "2, 4, 5, 99999, 100000, 100001"},
      {{{50'000, 50'000}, {50'001, 50'001}}, "50000, 50001"},
      {{{200'000, 200'001}}, ""},
  };
  for (const auto& row : rows) {
    Limits limits;
    limits.ranges = row.ranges;
    const Scan found = Readers({{Needles({{"word"}}), limits}}).scan(path)[0];
    EXPECT_EQ(each(found.matches, &Match::line), row.lines);
    if (found.matches.size() > 1) EXPECT_EQ(found.matches[1].writer.rank, 1);
  }
  ::unlink(path);
}

TEST(Scanner, LinesOfQuietBlocksAreCountedWhereNobodyAsksWhoWrote) {
  std::string text;
  for (int i = 1; i <= 30'000; ++i) text += "[rank1]: " + std::to_string(i) + "\n";
  text += "word\n" + text + "word";
  Limits limits;
  limits.speakers = 0;
  for (const std::size_t chunk : {std::size_t{100}, std::size_t{1} << 16}) {
    const Scan found = scan(text, {{"word"}}, limits, chunk);
    EXPECT_EQ(each(found.matches, &Match::line), "30001, 60002");
    EXPECT_EQ(found.lines, 60'002U);
    EXPECT_TRUE(found.speakers.empty());
  }
}

}  // namespace
}  // namespace oddrank::logs
