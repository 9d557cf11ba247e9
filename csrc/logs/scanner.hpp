// Scans a log for lines that contain one of a set of words, and notes which processes wrote lines.
//
// A log is read in chunks, so its size and the length of its lines do not matter. Bytes are taken
// as they are: carriage returns, escape sequences, NUL and torn lines are all expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "logs/prefixes.hpp"
#include "logs/timestamps.hpp"

namespace oddrank::logs {

// A word to look for, at least Needles::kLeast bytes long. follow > 0: with a matching line come
// the indented lines that the same process wrote after it, and the one after these (a traceback
// ends so), at most that many. follow < 0: just as many lines come, indented or not.
struct Needle {
  std::string text;
  int follow = 0;
};

// Finds any of a set of words. Of a text, only every n-th group of four bytes is looked at: n so
// small that each word holds one of them wherever it stands. Nearly all are in no word, as a table
// of bits says.
class Needles {
 public:
  static constexpr std::size_t kLeast = 4;
  static constexpr std::size_t kMost = 64;

  // Throws Error if there are more than kMost words, or one is too short.
  explicit Needles(std::vector<Needle> needles);

  // Returns the words that a text contains, one bit each, the first word in the lowest.
  std::uint64_t in(std::string_view text) const;

  const Needle& operator[](std::size_t index) const { return needles_[index]; }
  std::size_t size() const { return needles_.size(); }
  std::size_t longest() const { return longest_; }

 private:
  struct Place {
    std::uint16_t group;  // hash of four bytes
    std::uint8_t needle;
    std::uint8_t offset;  // where in the needle they stand
  };

  static std::uint16_t hash(const char* at);
  std::uint64_t check(std::string_view text, std::size_t at, std::uint16_t group) const;

  std::vector<Needle> needles_;
  std::size_t stride_ = 1;
  std::size_t longest_ = 0;
  std::vector<std::uint64_t> bits_;  // by hash: whether any needle holds such a group
  std::vector<Place> places_;        // sorted by group
};

// Prefix with texts of its own.
struct Writer {
  std::int64_t rank = -1;
  std::int64_t local_rank = -1;
  std::int64_t task = -1;
  std::int64_t host_number = -1;
  std::int64_t pid = -1;
  std::string host;
  std::string pod;

  Writer() = default;
  explicit Writer(const Prefix& prefix);
  bool operator==(const Writer&) const = default;
};

struct Match {
  std::uint64_t line = 0;  // from 1
  std::size_t needle = 0;  // the first of those that match
  bool follows = false;    // comes with the match before it, by the same writer
  bool repeated = false;
  std::string text;  // without prefixes, escape sequences and control characters
  Writer writer;
  std::optional<Timestamp> time;
};

// A process that wrote lines with a prefix.
struct Speaker {
  Writer writer;
  std::uint64_t lines = 0;
  std::uint64_t first_line = 0;
  std::uint64_t last_line = 0;
  std::optional<Timestamp> last;  // of the last line, if it names one
};

struct Limits {
  std::size_t matches = 20'000;   // of one needle; of more, the first and the last are kept
  std::size_t text = 2048;        // bytes of a match
  std::size_t total = 64u << 20;  // bytes of all texts, roughly
  std::size_t speakers = 65'536;  // more are not counted
  std::size_t line = 1u << 20;    // longer lines are scanned in pieces
  std::int64_t reference_ns = 0;  // for times without a year, see find_time()
};

struct Scan {
  std::vector<Match> matches;  // in the order of the file
  std::uint64_t left_out = 0;
  std::vector<Speaker> speakers;
  bool speakers_left_out = false;
  std::uint64_t lines = 0;
  std::uint64_t bytes = 0;
};

// Scans chunk by chunk. Feed it everything, then take finish().
class Scanner {
 public:
  Scanner(const Needles& needles, const Limits& limits);
  ~Scanner();
  Scanner(const Scanner&) = delete;
  Scanner& operator=(const Scanner&) = delete;

  void feed(std::string_view chunk);
  Scan finish();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

// Scans a file. Throws SystemError if it cannot be read.
Scan scan_file(const std::string& path, const Needles& needles, Limits limits);

}  // namespace oddrank::logs
