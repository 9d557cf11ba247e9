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

#include "../words.hpp"
#include "logs/pieces.hpp"
#include "logs/rhythms.hpp"
#include "logs/scanner.hpp"

namespace oddrank::logs {
namespace {

using TaggedLine = std::pair<std::int64_t, std::string>;  // rank, what it said

struct TaggedLog {
  std::vector<TaggedLine> lines;
  std::vector<std::uint64_t> begins;
  std::string bytes;
};

TaggedLog read_tagged(const std::string& log, std::size_t chunk = 7,
                      std::size_t longest = PieceReader::kLongest) {
  PieceReader reader(longest);
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

Scan scan_tagged(const std::string& log, std::vector<Needle> words, Limits limits = {}) {
  const Needles needles(std::move(words));
  Scanner scanner(needles, limits);
  for (std::size_t at = 0; at < log.size(); at += 5)
    scanner.feed(std::string_view(log).substr(at, 5));
  return scanner.finish();
}

std::string in_order(std::string text) {
  std::sort(text.begin(), text.end());
  return text;
}

TEST(TaggedParts, PartsOfOneRankAreOneLineWhateverComesBetween) {
  const std::string time = "Mon Nov 23 15:00:00 2026", a = "[pod/a-0/x] ", b = "[pod/b-0/x] ";
  const struct {
    const char* why;
    std::string log;
    std::vector<TaggedLine> lines;
  } rows[] = {{"parts",
               "[1,0]<stdout>:line[1,0]<stdout>: [1,0]<stdout>:7[1,0]<stdout>:\nend\n",
               {{0, "line 7\n"}, {-1, "end\n"}}},
              {"stdout and stderr of a rank do not mix",
               "[1,1]<stdout>:out [1,1]<stderr>:err\n[1,1]<stdout>:more\n",
               {{1, "err\n"}, {1, "out more\n"}}},
              {"a part without an end comes last",
               "[1,0]<stdout>:wait[1,1]<stdout>:a\n[1,1]<stdout>:b",
               {{1, "a\n"}, {0, "wait"}, {1, "b"}}},
              {"what stands before the tags is no part",
               time + "[1,0]<stdout>:a" + time + "[1,0]<stdout>:b\n",
               {{0, "ab\n"}}},
              {"nor what has no tag",
               "[1,0]<stdout>:x\nuntagged[1,0]<stdout>:a\n",
               {{0, "x\n"}, {-1, "untagged"}, {0, "a\n"}}},
              {"two mpiruns behind one log: the ranks of each pod are its own",
               a + "[1,0]<stdout>:a1 [1,1]<stdout>:z\n" + b + "[1,0]<stdout>:b\n" + a +
                   "[1,0]<stdout>:a2\n",
               {{1, "z\n"}, {0, "b\n"}, {0, "a1 a2\n"}}}};
  for (const auto& row : rows) EXPECT_EQ(read_tagged(row.log).lines, row.lines) << row.why;
}

TEST(TaggedParts, ANewlineMayComeAlone) {
  const TaggedLog all =
      read_tagged("[1,2]<stdout>:a[1,0]<stdout>:b\n[1,2]<stdout>:\n[1,2]<stdout>:c\n");
  EXPECT_EQ(all.lines, (std::vector<TaggedLine>{{0, "b\n"}, {2, "a\n"}, {2, "c\n"}}));
  EXPECT_EQ(all.begins, (std::vector<std::uint64_t>{1, 1, 3}));
}

TEST(TaggedParts, MessagesOfMpirunItselfEndNoLine) {
  const std::string row(74, '-');
  const TaggedLog all =
      read_tagged("[1,0]<stdout>:a " + row + "\nbye\n" + row + "\n[1,0]<stdout>:b\n");
  EXPECT_EQ(all.lines, (std::vector<TaggedLine>{
                           {-1, row + "\n"}, {-1, "bye\n"}, {-1, row + "\n"}, {0, "a b\n"}}));
}

TEST(TaggedParts, ProgramsOwnRowsOfDashesEndTheirLines) {
  const std::string row(74, '-'), tag = "[1,0]<stdout>:", other = "[1,1]<stderr>:";
  EXPECT_EQ(read_tagged(tag + row + "\n").lines, (std::vector<TaggedLine>{{0, row + "\n"}}));
  for (const std::string& next : {tag, other}) {
    const TaggedLog all = read_tagged(tag + "INFO: " + row + "\n" + next + "Traceback\n");
    EXPECT_EQ(all.lines, (std::vector<TaggedLine>{{0, "INFO: " + row + "\n"},
                                                  {next == tag ? 0 : 1, "Traceback\n"}}));
    EXPECT_EQ(all.begins, (std::vector<std::uint64_t>{1, 2}));
  }
  EXPECT_EQ(read_tagged(tag + "a" + other + "b\n" + tag + " " + row + "\n").lines,
            (std::vector<TaggedLine>{{1, "b\n"}, {0, "a " + row + "\n"}}));
  // A message that goes on with a line longer than any piece.
  const std::string text(100, 'x');
  EXPECT_EQ(read_tagged(tag + "a" + row + "\n" + text + "\n" + tag + "b\n", 3, 120).lines,
            (std::vector<TaggedLine>{{-1, row + "\n"}, {-1, text + "\n"}, {0, "ab\n"}}));
  EXPECT_EQ(
      read_tagged(tag + "a" + row + "\n" + text + "\n" + tag + "b\n", 1, 99).lines,
      (std::vector<TaggedLine>{{-1, row + "\n"}, {-1, text.substr(1)}, {-1, "x\n"}, {0, "ab\n"}}));
}

TEST(TaggedParts, ALongWriteBehindALaunchersPrefixKeepsItsBytesAndItsWriter) {
  const std::string log = "[pod/a-0/x] [1,0]<stdout>:" + std::string(300, 'x') + "\n";
  for (const std::size_t chunk : {1UL, 7UL, 100UL, 1000UL}) {
    const TaggedLog all = read_tagged(log, chunk, 64);
    EXPECT_EQ(all.bytes, log);
    for (const auto& [rank, text] : all.lines) EXPECT_EQ(rank, 0);
  }
}

// A launcher's prefix stands once before a line, however often the line is cut.
TEST(TaggedParts, ALongLineKeepsItsPrefixToItsEnd) {
  std::string log = "[pod/a-0/x] ", said;
  for (int i = 0; i < 50; ++i) {
    log += "[1,0]<stdout>:part " + std::to_string(i) + ",";
    said += "part " + std::to_string(i) + ",";
  }
  log += "\n[pod/b-0/x] [1,0]<stdout>:other\n";
  for (const std::size_t chunk : {1UL, 7UL, 100UL, 5000UL}) {
    PieceReader reader(128);
    std::vector<std::pair<std::string, std::string>> lines;
    std::string bytes;
    const auto take = [&](const Piece& piece) {
      lines.emplace_back(piece.who.pod, piece.stripped());
      bytes += piece.text;
    };
    for (std::size_t at = 0; at < log.size(); at += chunk) {
      reader.feed(std::string_view(log).substr(at, chunk), take);
    }
    reader.finish(take);
    EXPECT_EQ(lines, (std::vector<std::pair<std::string, std::string>>{{"a-0", said + "\n"},
                                                                       {"b-0", "other\n"}}));
    EXPECT_EQ(bytes, log);
  }
  Limits limits;
  limits.line = 128;
  const Scan found = scan_tagged(log, {{"part 0,part 1,"}}, limits);
  ASSERT_EQ(found.matches.size(), 1U);
  EXPECT_EQ(found.matches[0].writer.pod, "a-0");
  ASSERT_EQ(found.speakers.size(), 2U);
  EXPECT_EQ(found.speakers[0].lines, 1U);
}

// What waits may be given in the last line, where it is too much, and again at the log's end.
TEST(TaggedParts, WhatTheLastLineGivesLivesUntilTheReaderHasFinished) {
  const std::string text(100, 'x');
  PieceReader reader(PieceReader::kLongest, 3 * text.size());
  std::vector<std::string_view> texts, said;
  const auto take = [&](const Piece& piece) {
    texts.push_back(piece.text);
    said.push_back(piece.said);
  };
  const std::string log = "[1,0]<stdout>:" + text + "[1,1]<stdout>:" + text;
  reader.feed(log, take);
  reader.finish(take);
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(std::string(texts[0]) + std::string(texts[1]), log);
  EXPECT_EQ(std::string(said[0]) + std::string(said[1]), log);
}

TEST(TaggedParts, StdoutAndStderrOfARankThatBeginInOneLineCountAsTwo) {
  const std::string begin = "[1,0]<stdout>:out[1,0]<stderr>:err\n", end = "[1,0]<stdout>:\n";
  for (const std::string& between : {std::string(), std::string("[1,0]<stderr>:more\n")}) {
    const std::uint64_t lines = between.empty() ? 2 : 3;
    const Scan found = scan_tagged(begin + between + end, {{"more"}});
    ASSERT_EQ(found.speakers.size(), 1U);
    EXPECT_EQ(found.speakers[0].lines, lines);
    Rhythms rhythms([&rhythms](const Writer&) { return rhythms.add(); });
    rhythms.feed(begin + between + end, 0, 0);
    rhythms.finish(0, 0);
    ASSERT_EQ(rhythms.all().size(), 1U);
    EXPECT_EQ(rhythms.all()[0].lines, lines);
  }
  // A word that is found counts no line twice.
  const Scan late =
      scan_tagged("[1,0]<stdout>:Kil[1,0]<stderr>:a\n[1,0]<stdout>:led\n", {{"Killed"}});
  ASSERT_EQ(late.speakers.size(), 1U);
  EXPECT_EQ(late.speakers[0].lines, 2U);
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

// Tags what ranks of one mpirun write as it does: each write, and each line of one.
class Launcher {
 public:
  using Wrote = std::map<std::pair<int, int>, std::string>;  // rank and stream -> bytes

  void write(int rank, int stream, const std::string& text) {
    wrote_[{rank, stream}] += text;
    const std::string tag =
        "[1," + std::to_string(rank) + (stream == 0 ? "]<stdout>:" : "]<stderr>:");
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
      lines_.back() += tag + text.substr(begin, end - begin);
      if (lines_.back().ends_with('\n')) lines_.emplace_back();
      begin = end;
    }
  }
  // Ends the line in hand: another launcher's may follow in the log.
  void end() {
    if (!lines_.back().empty()) write(0, 0, "\n");
  }
  const std::vector<std::string>& lines() const { return lines_; }

  std::vector<std::string> said() const {
    std::vector<std::string> lines;
    for (auto [writer, left] : wrote_) {
      while (!left.empty()) {
        const std::size_t end = std::min(left.find('\n'), left.size() - 1) + 1;
        lines.push_back(std::to_string(writer.first) + ": " + left.substr(0, end));
        left.erase(0, end);
      }
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  }

 private:
  Wrote wrote_;
  std::vector<std::string> lines_{1};
};

// What programs write comes out as they wrote it: any writes of any ranks, of two mpiruns whose
// lines lie in one log, in lines longer than the reader takes at once.
TEST(TaggedParts, RandomWritesComeOutAsTheyWereWritten) {
  constexpr unsigned kSeed = 20261126;
  std::mt19937 random(kSeed);
  const std::array<std::string, 9> texts{
      "step", " ", "\n", "\n", "loss 2.5\n", "a\nb", "\r 9%", "[", "x" + std::string(74, '-')};
  const std::array<std::string, 2> heads{"[pod/a-0/x] ", "node7: "};
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", round " + std::to_string(round));
    std::array<Launcher, 2> launchers;
    for (Launcher& launcher : launchers) {
      for (std::size_t i = random() % 60; i > 0; --i) {
        launcher.write(static_cast<int>(random() % 3), static_cast<int>(random() % 2),
                       texts[random() % texts.size()]);
      }
      launcher.end();
    }
    std::string log;
    std::array<std::size_t, 2> next{};
    while (next[0] < launchers[0].lines().size() || next[1] < launchers[1].lines().size()) {
      const std::size_t one = random() % 2;
      if (next[one] == launchers[one].lines().size()) continue;
      const std::string& line = launchers[one].lines()[next[one]++];
      if (!line.empty()) log += heads[one] + line;
    }
    // A head, a tag, the longest write and a part of the next tag.
    const std::size_t longest = random() % 2 == 0 ? 140 : PieceReader::kLongest;
    const auto read = [&](std::size_t chunk) {
      PieceReader reader(longest);
      std::array<std::vector<std::string>, 2> said;
      std::string bytes;
      const auto take = [&](const Piece& piece) {
        said[piece.who.host.empty() ? 0 : 1].push_back(std::to_string(piece.who.task) + ": " +
                                                       std::string(piece.stripped()));
        bytes += piece.text;
      };
      for (std::size_t at = 0; at < log.size(); at += chunk) {
        reader.feed(std::string_view(log).substr(at, chunk), take);
      }
      reader.finish(take);
      EXPECT_EQ(in_order(bytes), in_order(log));
      return said;
    };
    auto said = read(1 + random() % 9);
    EXPECT_EQ(said, read(100'000)) << log;
    for (const std::size_t one : {0, 1}) {
      std::sort(said[one].begin(), said[one].end());
      EXPECT_EQ(said[one], launchers[one].said()) << log;
    }
  }
}

TEST(TaggedParts, AScannerFindsWordsAcrossPartsWhereTheirLineBegins) {
  const Scan found = scan_tagged(
      "[1,1]<stderr>:Trace[1,0]<stdout>:step\n[1,1]<stderr>:back (most)\n"
      "[1,1]<stdout>:step 5\n[1,1]<stderr>:  [1,1]<stderr>:File[1,0]<stdout>:\n"
      "[1,1]<stderr>:\n[1,1]<stderr>:Value[1,1]<stderr>:Error: no\n",
      {{"Traceback", 10}});
  EXPECT_EQ(each(
                found.matches, [](const Match& match) { return match.writer.task; }, &Match::line,
                &Match::text),
            "1 1 Traceback (most), 1 4   File, 1 6 ValueError: no");
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
