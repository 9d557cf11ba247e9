// Scanning: words, writers, torn and endless lines, tracebacks, limits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "logs/scanner.hpp"
#include "os/error.hpp"

namespace oddrank::logs {
namespace {

Scan scan(const std::string& text, std::vector<Needle> words, Limits limits = {},
          std::size_t chunk = 7) {
  const Needles needles(std::move(words));
  Scanner scanner(needles, limits);
  for (std::size_t at = 0; at < text.size(); at += chunk) {
    scanner.feed(std::string_view(text).substr(at, chunk));
  }
  return scanner.finish();
}

TEST(Scanner, FindsWordsWithTheirLinesAndWriters) {
  const Scan found =
      scan("one\n[rank3]: Watchdog caught it\r\ntwo\n4: Killed", {{"Killed"}, {"Watchdog"}});
  ASSERT_EQ(found.matches.size(), 2U);
  EXPECT_EQ(found.matches[0].line, 2U);
  EXPECT_EQ(found.matches[0].needle, 1U);
  EXPECT_EQ(found.matches[0].text, "Watchdog caught it");
  EXPECT_EQ(found.matches[0].writer.rank, 3);
  EXPECT_EQ(found.matches[1].line, 4U);
  EXPECT_EQ(found.matches[1].writer.task, 4);
  EXPECT_EQ(found.lines, 4U);
  ASSERT_EQ(found.speakers.size(), 2U);
  EXPECT_EQ(found.speakers[1].last_line, 4U);
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
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (text.find(words[i].text) != std::string::npos) expected |= std::uint64_t{1} << i;
    }
    ASSERT_EQ(needles.in(text), expected) << text;
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
}

// As in the cutting of lines: with a word to look for behind each of them, too.
TEST(Scanner, HostileLinesAreScannedInLinearTime) {
  for (const std::string token :
       {"[\r", "\r[rank", "[rank1]:", "[rank1]:\r", "[1,0]<stdout>:", "]<std", "\x1b[", "\x1b]",
        "\r\x1b[m", "\r(pid=", "\rnode7: ", "\r7: ", "[a:rank", "[a:rank3] ", "{\"log\":", "it/s",
        "-", "[", "\r"}) {
    for (const std::string word : {"", "Killed"}) {
      SCOPED_TRACE(token + word);
      std::string line = "[1,0]<stdout>:x[1,1]<stdout>:\n[1,0]<stdout>:";
      while (line.size() < 1u << 18) line += token + word;
      const Scan found = scan(line + "\n" + line, {{"Killed"}}, {}, 1 << 18);
      EXPECT_EQ(found.bytes, 2 * line.size() + 1);
    }
  }
}

TEST(Scanner, AWordInTheOverlapOfTwoPiecesIsOneMatch) {
  Limits limits;
  limits.line = 1000;
  std::string text(3000, 'x');
  text.replace(984, 6, "Killed");  // the longer word makes the overlap longer than this one
  const Scan found = scan(text, {{"Killed"}, {"a word that is longer than the other"}}, limits, 64);
  EXPECT_EQ(found.matches.size(), 1U);
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

TEST(Scanner, CarriageReturnsEndPieces) {
  const Scan found = scan("7: 1%\r2%\r[rank4]: Killed\r3% Killed\n", {{"Killed"}});
  ASSERT_EQ(found.matches.size(), 2U);
  EXPECT_EQ(found.matches[0].writer.rank, 4);
  EXPECT_EQ(found.matches[1].writer.task, 7);
}

TEST(Scanner, ATornLineIsTwoMatches) {
  const Scan found = scan("[rank1]:[E] Watchdog a[rank2]:[E] Watchdog b\n", {{"Watchdog"}});
  ASSERT_EQ(found.matches.size(), 2U);
  EXPECT_EQ(found.matches[0].text, "[E] Watchdog a");
  EXPECT_EQ(found.matches[1].writer.rank, 2);
}

TEST(Scanner, ANumberTooLongForARankIsText) {
  const std::string torn = "[rank" + std::string(40, '6') + "]: Killed";
  for (const std::string& before : {std::string(), std::string("[rank1]: Killed ")}) {
    const Scan found = scan(before + torn + "\n", {{"Killed"}});
    ASSERT_EQ(found.matches.size(), before.empty() ? 1U : 2U);
    EXPECT_EQ(found.matches.back().writer.rank, -1);
  }
}

TEST(Scanner, TracebacksOfSeveralRanksDoNotMix) {
  const Scan found = scan(
      "[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n"
      "[rank0]:   File \"a\"\n[rank1]:   File \"b\"\nnoise\n[rank1]: ValueError: 1\n"
      "[rank0]: ValueError: 0\n[rank0]: noise\n",
      {{"Traceback", 10}});
  std::string of0;
  std::string of1;
  for (const Match& match : found.matches) (match.writer.rank == 0 ? of0 : of1) += match.text + "|";
  EXPECT_EQ(of0, "Traceback (most recent call last):|  File \"a\"|ValueError: 0|");
  EXPECT_EQ(of1, "Traceback (most recent call last):|  File \"b\"|ValueError: 1|");
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

TEST(Scanner, NoControlCharacterComesOut) {
  const Scan found = scan(std::string("\x1b[31mKilled\x1b[0m \0 \x07!\n", 22), {{"Killed"}});
  ASSERT_EQ(found.matches.size(), 1U);
  EXPECT_EQ(found.matches[0].text, "Killed  !");
}

TEST(Scanner, TheNumberOfSpeakersIsBounded) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "[rank" + std::to_string(i) + "]: x\n";
  Limits limits;
  limits.speakers = 10;
  const Scan found = scan(text, {{"nothing"}}, limits);
  EXPECT_EQ(found.speakers.size(), 10U);
  EXPECT_TRUE(found.speakers_left_out);
}

TEST(Scanner, RefusesWordsThatAreTooShortOrTooMany) {
  EXPECT_THROW(Needles({{"abc"}}), Error);
  EXPECT_THROW(Needles(std::vector<Needle>(65, {"word"})), Error);
}

TEST(Scanner, ATracebackIsReadBehindAPrefixThatNobodyKnows) {
  const std::string lines =
      "<03:00:01> Traceback (most recent call last):\n<03:00:01>   File \"a.py\", line 3\n"
      "other: step 7\n<03:00:02>     f()\n<03:00:02> ValueError: no\n<03:00:02> more\n";
  const Scan found = scan(lines, {{"Traceback (most recent call last)", 400}});
  ASSERT_EQ(found.matches.size(), 4U);
  EXPECT_EQ(found.matches[1].text, "  File \"a.py\", line 3");
  EXPECT_EQ(found.matches[2].text, "    f()");
  EXPECT_EQ(found.matches[3].text, "ValueError: no");
}

TEST(Scanner, SpacesInFrontOfAWordAreNoPrefix) {
  const Scan found = scan("  Traceback (most recent call last):\n    File\n  ValueError: no\nx\n",
                          {{"Traceback (most recent call last)", 400}});
  ASSERT_EQ(found.matches.size(), 4U);
  EXPECT_EQ(found.matches[1].text, "    File");
}

TEST(Scanner, LinesThatDockerPackedAreReadAsTheyWereWritten) {
  const Scan found = scan(
      "{\"log\": \"[rank3]: Killed \\\"\\u00e9\\u2192\\\"\\r\\n\", \"stream\": \"stderr\", "
      "\"time\": "
      "\"2026-11-23T03:00:01.5Z\"}\n{\"log\":\"Killed\n{\"log\":\"Killed\\u12\"}\n",
      {{"Killed"}});
  ASSERT_EQ(found.matches.size(), 3U);
  EXPECT_EQ(found.matches[0].text, "Killed \"\u00e9\u2192\"");
  EXPECT_EQ(found.matches[0].writer.rank, 3);
  ASSERT_TRUE(found.matches[0].time.has_value());
  EXPECT_EQ(found.matches[0].time->clock, Timestamp::Clock::utc);
  ASSERT_EQ(found.speakers.size(), 1U);
  EXPECT_TRUE(found.speakers[0].last.has_value());
  EXPECT_EQ(found.matches[1].text, "{\"log\":\"Killed");
}

}  // namespace
}  // namespace oddrank::logs
