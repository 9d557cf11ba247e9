// Lines that mpirun tagged in parts: joined whatever comes between, and no byte lost or doubled.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "logs/pieces.hpp"
#include "logs/scanner.hpp"

namespace oddrank::logs {
namespace {

using TaggedLine = std::pair<std::int64_t, std::string>;  // rank, what it said

struct TaggedLog {
  std::vector<TaggedLine> lines;
  std::vector<std::uint64_t> begins;
  std::string bytes;
};

TaggedLog read_tagged(const std::string& log, std::size_t chunk = 7) {
  PieceReader reader;
  TaggedLog all;
  const auto take = [&all](const Piece& piece) {
    all.lines.emplace_back(piece.who.task, std::string(piece.stripped()));
    all.begins.push_back(piece.line);
    all.bytes += piece.text;
  };
  for (std::size_t at = 0; at < log.size(); at += chunk) {
    reader.feed(std::string_view(log).substr(at, chunk), take);
  }
  reader.finish(take);
  return all;
}

std::string in_order(std::string text) {
  std::sort(text.begin(), text.end());
  return text;
}

TEST(TaggedParts, PartsOfOneRankAreOneLine) {
  const TaggedLog all =
      read_tagged("[1,0]<stdout>:line[1,0]<stdout>: [1,0]<stdout>:7[1,0]<stdout>:\nend\n");
  EXPECT_EQ(all.lines, (std::vector<TaggedLine>{{0, "line 7\n"}, {-1, "end\n"}}));
}

TEST(TaggedParts, ANewlineMayComeAlone) {
  const TaggedLog all =
      read_tagged("[1,2]<stdout>:a[1,0]<stdout>:b\n[1,2]<stdout>:\n[1,2]<stdout>:c\n");
  EXPECT_EQ(all.lines, (std::vector<TaggedLine>{{0, "b\n"}, {2, "a\n"}, {2, "c\n"}}));
  EXPECT_EQ(all.begins, (std::vector<std::uint64_t>{1, 1, 3}));
}

TEST(TaggedParts, StdoutAndStderrOfARankDoNotMix) {
  const TaggedLog all = read_tagged("[1,1]<stdout>:out [1,1]<stderr>:err\n[1,1]<stdout>:more\n");
  EXPECT_EQ(all.lines, (std::vector<TaggedLine>{{1, "err\n"}, {1, "out more\n"}}));
}

TEST(TaggedParts, APartWithoutAnEndComesLast) {
  const TaggedLog all = read_tagged("[1,0]<stdout>:wait[1,1]<stdout>:a\n[1,1]<stdout>:b");
  EXPECT_EQ(all.lines, (std::vector<TaggedLine>{{1, "a\n"}, {0, "wait"}, {1, "b"}}));
}

TEST(TaggedParts, MessagesOfMpirunItselfEndNoLine) {
  const std::string row(74, '-');
  const TaggedLog all =
      read_tagged("[1,0]<stdout>:a " + row + "\nbye\n" + row + "\n[1,0]<stdout>:b\n");
  EXPECT_EQ(all.lines, (std::vector<TaggedLine>{
                           {-1, row + "\n"}, {-1, "bye\n"}, {-1, row + "\n"}, {0, "a b\n"}}));
  const std::string own = "[1,0]<stdout>:" + row + "\n";  // a program's own row
  EXPECT_EQ(read_tagged(own).lines, (std::vector<TaggedLine>{{0, row + "\n"}}));
}

TEST(TaggedParts, WhatStandsBeforeTheTagsIsNoPart) {
  const std::string time = "Mon Nov 23 15:00:00 2026";
  EXPECT_EQ(read_tagged(time + "[1,0]<stdout>:a" + time + "[1,0]<stdout>:b\n").lines,
            (std::vector<TaggedLine>{{0, "ab\n"}}));
  EXPECT_EQ(read_tagged("[1,0]<stdout>:x\nuntagged[1,0]<stdout>:a\n").lines,
            (std::vector<TaggedLine>{{0, "x\n"}, {-1, "untagged"}, {0, "a\n"}}));
  // Two mpiruns behind one log: the ranks of each pod are its own.
  const std::string a = "[pod/a-0/x] ", b = "[pod/b-0/x] ";
  EXPECT_EQ(read_tagged(a + "[1,0]<stdout>:a1 [1,1]<stdout>:z\n" + b + "[1,0]<stdout>:b\n" + a +
                        "[1,0]<stdout>:a2\n")
                .lines,
            (std::vector<TaggedLine>{{1, "z\n"}, {0, "b\n"}, {0, "a1 a2\n"}}));
}

TEST(TaggedParts, AnEndlessLineOfProgressBarsIsReadInLittleMemory) {
  std::string log;
  std::string said;
  for (int i = 0; log.size() < 3 * PieceReader::kLongest; ++i) {
    const std::string state = "\r " + std::to_string(i) + "it";
    log += "[1," + std::to_string(i % 2) + "]<stderr>:" + state;
    if (i % 2 == 0) said += state;
  }
  const TaggedLog all = read_tagged(log + "\n", 1000);
  EXPECT_EQ(in_order(all.bytes), in_order(log + "\n"));
  for (const auto& [rank, text] : all.lines) {
    EXPECT_EQ(rank == 0 ? text : said, said);
  }
  EXPECT_EQ(all.lines.size(), 2U);
}

TEST(TaggedParts, TooMuchThatWaitsBecomesLinesWithoutAnEnd) {
  std::string log;
  const std::string text(100'000, 'x');
  for (int rank = 0; rank < 400; ++rank) log += "[1," + std::to_string(rank) + "]<stdout>:" + text;
  const TaggedLog all = read_tagged(log, 1 << 16);
  EXPECT_EQ(all.lines.size(), 400U);
  EXPECT_EQ(all.bytes, log);
}

// What programs write comes out as they wrote it: any writes of any ranks, tagged as mpirun does.
TEST(TaggedParts, RandomWritesComeOutAsTheyWereWritten) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::array<std::string, 8> texts{"step",       " ",    "\n",    "\n",
                                         "loss 2.5\n", "a\nb", "\r 9%", "["};
  for (int round = 0; round < 500; ++round) {
    std::map<std::pair<int, int>, std::string> wrote;  // rank and stream -> bytes
    std::string log;
    for (std::size_t i = random() % 60; i > 0; --i) {
      const int rank = static_cast<int>(random() % 3), stream = static_cast<int>(random() % 2);
      const std::string& text = texts[random() % texts.size()];
      wrote[{rank, stream}] += text;
      const std::string tag =
          "[1," + std::to_string(rank) + (stream == 0 ? "]<stdout>:" : "]<stderr>:");
      log += tag;
      for (std::size_t at = 0; at < text.size(); ++at) {
        log += text[at];
        if (text[at] == '\n' && at + 1 < text.size()) log += tag;
      }
    }
    const TaggedLog all = read_tagged(log, 1 + random() % 9);
    EXPECT_EQ(all.lines, read_tagged(log, 100'000).lines) << log;
    EXPECT_EQ(in_order(all.bytes), in_order(log));
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<std::string> said, expected;
      for (const auto& [who, text] : all.lines) {
        if (who == rank) said.push_back(text);
      }
      for (const int stream : {0, 1}) {
        std::string left = wrote[{rank, stream}];
        while (!left.empty()) {
          const std::size_t end = std::min(left.find('\n'), left.size() - 1) + 1;
          expected.push_back(left.substr(0, end));
          left.erase(0, end);
        }
      }
      std::sort(said.begin(), said.end());
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(said, expected) << log;
    }
  }
}

Scan scan_tagged(const std::string& log, std::vector<Needle> words, Limits limits = {}) {
  const Needles needles(std::move(words));
  Scanner scanner(needles, limits);
  for (std::size_t at = 0; at < log.size(); at += 5)
    scanner.feed(std::string_view(log).substr(at, 5));
  return scanner.finish();
}

TEST(TaggedParts, AScannerFindsWordsAcrossPartsWhereTheirLineBegins) {
  const Scan found = scan_tagged(
      "[1,1]<stderr>:Trace[1,0]<stdout>:step\n[1,1]<stderr>:back (most)\n"
      "[1,1]<stdout>:step 5\n[1,1]<stderr>:  [1,1]<stderr>:File[1,0]<stdout>:\n"
      "[1,1]<stderr>:\n[1,1]<stderr>:Value[1,1]<stderr>:Error: no\n",
      {{"Traceback", 10}});
  ASSERT_EQ(found.matches.size(), 3U);
  EXPECT_EQ(found.matches[0].text, "Traceback (most)");
  EXPECT_EQ(found.matches[0].line, 1U);
  EXPECT_EQ(found.matches[0].writer.task, 1);
  EXPECT_EQ(found.matches[1].text, "  File");
  EXPECT_EQ(found.matches[2].text, "ValueError: no");
  EXPECT_EQ(found.matches[2].line, 6U);
  EXPECT_EQ(found.lines, 6U);
}

TEST(TaggedParts, AScannerReadsAnEndlessTaggedLine) {
  Limits limits;
  limits.line = 1000;
  std::string log;
  for (int i = 0; i < 300; ++i) log += "[1,0]<stderr>:\r bar[1,1]<stderr>:xx";
  const Scan found =
      scan(log + "Kil[1,1]<stderr>:led\n[1,0]<stderr>: Killed\n", {{"Killed"}}, limits);
  ASSERT_EQ(found.matches.size(), 2U);
  EXPECT_EQ(found.matches[0].writer.task, 1);
  EXPECT_EQ(found.matches[1].writer.task, 0);
  EXPECT_EQ(found.lines, 2U);
}

}  // namespace
}  // namespace oddrank::logs
