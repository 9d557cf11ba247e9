// Splitting and merging: every byte in one file, order by time, little memory, safe terminals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "../in_folder.hpp"
#include "logs/merger.hpp"
#include "logs/raw_text.hpp"
#include "logs/splitter.hpp"
#include "os/error.hpp"

namespace oddrank::logs {
namespace {

namespace fs = std::filesystem;

class Folder : public InFolder {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  std::string get(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }
};

using SplitterTest = Folder;
using MergerTest = Folder;

// Splits a text into files named by rank.
struct Ranks {
  explicit Ranks(const std::string& folder, bool strip = false)
      : splitter(
            folder, [this](const Writer& w) { return number(w); }, strip) {}
  std::size_t number(const Writer& writer) {
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (known[i] == writer.rank) return i;
    }
    known.push_back(writer.rank);
    return splitter.add(std::to_string(writer.rank));
  }
  std::vector<std::int64_t> known;
  Splitter splitter;
};

TEST_F(SplitterTest, MoreRanksThanOpenFilesAreWritten) {
  Ranks ranks(folder_);
  std::string text;
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < 700; ++rank) {
      text += "[rank" + std::to_string(rank) + "]: " + std::to_string(round) + "\n";
    }
    ranks.splitter.feed(text);
    ranks.splitter.flush();
    text.clear();
  }
  for (const int rank : {0, 399, 699}) {
    const std::string prefix = "[rank" + std::to_string(rank) + "]: ";
    EXPECT_EQ(get(std::to_string(rank)), prefix + "0\n" + prefix + "1\n" + prefix + "2\n");
  }
}

TEST_F(SplitterTest, AnExistingFileIsNeverTouched) {
  put("0", "precious");
  Ranks ranks(folder_);
  EXPECT_THROW(ranks.splitter.feed("[rank0]: a\n"), SystemError);
  EXPECT_EQ(get("0"), "precious");
}

class Merge {
 public:
  explicit Merge(std::string folder) : folder_(std::move(folder)) {}

  std::string operator()(const std::vector<std::string>& paths) {
    std::vector<MergeSource> sources;
    for (const auto& path : paths) sources.push_back({path, 1'800'000'000'000'000'000});
    MergeOptions options;
    const std::string out = folder_ + "/merged";
    const Fd fd(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    options.fd = fd.get();
    options.label = [](std::size_t source, const Writer&) { return std::to_string(source) + "|"; };
    options.pause = [] {};
    merged = merge_logs(sources, options);
    std::ostringstream text;
    text << std::ifstream(out).rdbuf();
    return text.str();
  }

  Merged merged;

 private:
  std::string folder_;
};

TEST_F(MergerTest, RandomLogsComeOutWholeAndSorted) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::string> paths;
  std::size_t bytes = 0, lines = 0;
  for (int file = 0; file < 40; ++file) {
    std::string text;
    unsigned second = 0;
    for (std::size_t i = random() % 200; i > 0; --i, ++lines) {
      second = std::min(second + static_cast<unsigned>(random() % 3), 3599U);
      char time[32];
      std::snprintf(time, sizeof time, "2026-01-01 00:%02u:%02u ", second / 60, second % 60);
      text += time + std::string(random() % 300, 'x') + "\n";
    }
    bytes += text.size();
    paths.push_back(put(std::to_string(file), text));
  }
  Merge merge(folder_);
  std::istringstream merged(merge(paths));
  std::string line, before;
  std::size_t seen = 0;
  for (; std::getline(merged, line); ++lines) {
    const std::string text = line.substr(line.find('|') + 1);
    EXPECT_LE(before, text.substr(0, 19));
    before = text.substr(0, 19);
    seen += text.size() + 1;
  }
  EXPECT_EQ(seen, bytes);
  EXPECT_EQ(merge.merged.lines * 2, lines);
}

TEST(Terminal, NothingThatATerminalObeysIsLeft) {
  const auto clean = [](const std::string& text) {
    std::string to;
    append_for_terminal(text, to);
    return to;
  };
  EXPECT_EQ(clean("a\x1b[2Jb\x1b]0;title\x07 c\td"), "ab c\td");
  EXPECT_EQ(clean("a\rb\bc\x7f\x01"), "a?b?c??");
  EXPECT_EQ(clean("\xc2\x9b"
                  "31m \x9b \xff"),
            "?31m ? ?");
  EXPECT_EQ(clean("\xe2\x80\xae"
                  "abc \xef\xbb\xbf"),
            "?abc ?");
  EXPECT_EQ(clean("Gr\xc3\xbc\xc3\x9f"
                  "e \xe2\x95\xad \xf0\x9f\x98\x80"),
            "Gr\xc3\xbc\xc3\x9f"
            "e \xe2\x95\xad \xf0\x9f\x98\x80");
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = static_cast<char>(random() % 256);
    for (const char c : clean(text)) {
      const auto byte = static_cast<unsigned char>(c);
      EXPECT_TRUE(byte >= 0x20 || byte == '\t');
      EXPECT_NE(byte, 0x7f);
    }
  }
}

}  // namespace
}  // namespace oddrank::logs
