// Scans a log for lines that contain one of a set of words, and notes which processes wrote lines.
//
// A log is read in chunks, so its size and the length of its lines do not matter. Bytes are taken
// as they are: carriage returns, escape sequences, NUL and torn lines are all expected.
#pragma once

#include "logs/needles.hpp"
#include "logs/prefixes.hpp"
#include "logs/timestamps.hpp"

namespace oddrank::logs {

struct Match {
  std::uint64_t line = 0;  // from 1
  std::size_t needle = 0;  // the first of those that match
  bool follows = false;    // comes with a match before it, by the same writer
  std::string text;        // without prefixes, escape sequences and control characters
  Writer writer;
  std::optional<Timestamp> time;
};

// A process that wrote lines with a prefix.
struct Speaker {
  Writer writer;
  std::uint64_t lines = 0;
  std::uint64_t first_line = 0;
  std::uint64_t last_line = 0;
};

// Lines from 1, the last one included.
struct LineRange {
  std::uint64_t first;
  std::uint64_t last;
};

// A place of a file, and how many lines end before it.
struct Mark {
  std::uint64_t lines = 0;
  std::uint64_t bytes = 0;
};

struct Limits {
  std::size_t matches = 20'000;   // of one needle; beyond that, keeps the first and the last
  std::size_t text = 2048;        // bytes of a match; 0: only its line and word are asked for
  std::size_t total = 64u << 20;  // bytes of all texts, roughly
  std::size_t speakers = 65'536;  // more are not counted; 0: writers are not wanted
  std::size_t line = 1u << 20;    // longer lines are scanned in pieces
  std::int64_t reference_ns = 0;  // for times without a year, see find_time()
  std::vector<LineRange> ranges;  // scans only these, sorted and apart; empty: all lines
  Mark begin;                     // reads from there on; in the midst of a line: not that one
};

struct Scan {
  std::vector<Match> matches;  // in the order in which their lines begin
  std::uint64_t left_out = 0;
  std::vector<Speaker> speakers;
  std::uint64_t lines = 0;
  std::vector<Mark> marks;  // every few MiB, for readers that need some lines again
};

// Scans a text as if it were a file that is read in chunks of a size, less than Limits::line.
Scan scan_text(std::string_view text, const Needles& needles, const Limits& limits,
               std::size_t chunk);

// The readers of a log in one pass, each with its own words and limits.
class Readers {
 public:
  struct Reader {
    Needles needles;
    Limits limits;
  };
  // Throws Error if there are more than 64.
  explicit Readers(std::vector<Reader> readers);
  // Returns each reader's matches in a file. Throws SystemError if it cannot be read.
  std::vector<Scan> scan(const std::string& path) const;

 private:
  std::vector<Reader> readers_;
  Needles all_;
};

}  // namespace oddrank::logs
