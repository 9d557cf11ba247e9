// Cutting: lines, torn lines and progress bars, in chunks of any size.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "hostile_lines.hpp"
#include "logs/pieces.hpp"

namespace oddrank::logs {
namespace {

using Cut = std::vector<std::pair<std::int64_t, std::string>>;  // rank, text

Cut cut(const std::string& text, std::size_t chunk = 5) {
  PieceReader reader;
  Cut found;
  const auto take = [&found](const Piece& piece) {
    found.emplace_back(piece.who.rank, std::string(piece.text));
  };
  for (std::size_t at = 0; at < text.size(); at += chunk) {
    reader.feed(std::string_view(text).substr(at, chunk), take);
  }
  reader.finish(take);
  return found;
}

TEST(Pieces, AnotherRanksPrefixCutsALine) {
  EXPECT_EQ(cut("[rank3]: a\r\nb"), (Cut{{3, "[rank3]: a\r\n"}, {-1, "b"}}));
  EXPECT_EQ(cut("[rank0]: loss 2[rank1]: loss 3\n"),
            (Cut{{0, "[rank0]: loss 2"}, {1, "[rank1]: loss 3\n"}}));
  EXPECT_EQ(cut("[a:rank0] x[b-7:rank12] y\n"),
            (Cut{{0, "[a:rank0] x"}, {12, "[b-7:rank12] y\n"}}));
  EXPECT_EQ(cut("x[default1]: y\n"), (Cut{{-1, "x"}, {-1, "[default1]: y\n"}}));
  // mpirun tags each write, and an unbuffered print() is two.
  EXPECT_EQ(cut("[1,0]<stdout>:x[1,1]<stdout>:y\n[1,0]<stdout>:\n"),
            (Cut{{-1, "[1,0]<stdout>:x"}, {-1, "[1,1]<stdout>:y\n"}, {-1, "[1,0]<stdout>:\n"}}));
}

TEST(Pieces, TheSameRanksPrefixAndOtherBracketsCutNothing) {
  for (const char* line :
       {"[rank0]: got [rank0]: again\n", "list [ranks] [rank] [rank3] [x:rank] z\n",
        "[rank0]: [rank123456789012]: x\n"}) {
    EXPECT_EQ(cut(line).size(), 1U) << line;
  }
}

TEST(Pieces, AProgressBarIsCutWhereTheWriterChanges) {
  EXPECT_EQ(cut("\r 1%|#| 1/9 [0:01, 1it/s]\r 2%|#| 2/9 [0:02, 1it/s]\n").size(), 1U);
  EXPECT_EQ(cut("[rank0]:  1%\r[rank1]:  5%\r[rank1]:  6%\n"),
            (Cut{{0, "[rank0]:  1%\r"}, {1, "[rank1]:  5%\r[rank1]:  6%\n"}}));
  EXPECT_EQ(cut("\r 9%|# | 1/9 [0:01, 1it/s][rank3]: Traceback\n"),
            (Cut{{-1, "\r 9%|# | 1/9 [0:01, 1it/s]"}, {3, "[rank3]: Traceback\n"}}));
}

TEST(Pieces, TheRestOfALongLineIsOfTheSameWriter) {
  const std::string text = "[node7:rank5] " + std::string(3 * PieceReader::kLongest, 'x') + "\n";
  std::string whole;
  for (const auto& [rank, part] : cut(text, 1000)) {
    EXPECT_EQ(rank, 5);
    whole += part;
  }
  EXPECT_EQ(whole, text);
}

TEST(Pieces, HostileLinesAreCutInLinearTime) {
  each_hostile_line("", [](const std::string& line) {
    std::size_t bytes = 0;
    PieceReader reader;
    const auto take = [&bytes](const Piece& piece) { bytes += piece.text.size(); };
    reader.feed(line + "\n" + line, take);
    reader.finish(take);
    EXPECT_EQ(bytes, 2 * line.size() + 1);
  });
}

TEST(Pieces, EachByteComesOnceWhateverTheChunks) {
  constexpr unsigned kSeed = 20261126;
  std::mt19937 random(kSeed);
  const std::vector<std::string> parts{"[rank1]: ", "[default2]:", "[h:rank3] ",         "\r",
                                       "\n",        "\x1b[0m",     "{\"log\":\"a\\n\"}", "text",
                                       "[",         "4: ",         std::string(1, '\0')};
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", round " + std::to_string(round));
    std::string text;
    for (std::size_t i = random() % 30; i > 0; --i) text += parts[random() % parts.size()];
    const Cut once = cut(text, 1000);
    EXPECT_EQ(cut(text, 1 + random() % 9), once) << text;
    std::string whole;
    for (const auto& one : once) whole += one.second;
    EXPECT_EQ(whole, text);
  }
}

}  // namespace
}  // namespace oddrank::logs
