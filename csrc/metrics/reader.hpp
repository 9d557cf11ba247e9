// Reads the rows of numbers from a log, chunk by chunk. The size of the log and the length of its
// lines do not matter: it holds a line's beginning, at most 1 MiB.
#pragma once

#include <deque>

#include "logs/needles.hpp"
#include "metrics/formats.hpp"
#include "metrics/row.hpp"

namespace oddrank::metrics {

class Reader {
 public:
  // reference_ns: for times without a year, as in logs::find_time(). pattern: the lines to read;
  // without one, all formats' lines.
  Reader(std::uint16_t file, std::int64_t reference_ns, Pattern pattern = {});

  // Adds the rows of all lines that end in this chunk.
  void feed(std::string_view chunk, std::deque<Row>& rows);
  // Adds the rows of the last line, which has no end. The next chunk begins a new line.
  void finish(std::deque<Row>& rows);
  // As finish(). The next chunk is of another file, whose lines count from 1.
  void begin_file(std::deque<Row>& rows);

  // Counts lines of all files until now.
  std::uint64_t lines() const { return earlier_ + lines_; }

 private:
  void scan(std::string_view text, std::size_t from, std::size_t end, std::deque<Row>& rows);
  // Whether each line is read: CSV, or the user's pattern.
  bool takes_all() const { return !csv_.empty() || !pattern_.empty(); }
  std::size_t take_line(std::string_view text, std::size_t& read, logs::Needles::Hit hit,
                        std::deque<Row>& rows);
  void take_step(std::string_view before, std::string_view line, std::deque<Row>& rows);
  void add(std::string_view head, Row& row, std::deque<Row>& rows);

  std::uint16_t file_;
  std::int64_t reference_ns_;
  Pattern pattern_;
  bool at_start_ = true;       // at a file's start: its first line may be a header
  Csv csv_;                    // columns of a file that has a header
  std::string held_;           // the end of the last lines, and the line that has no end yet
  std::size_t open_ = 0;       // where in it that line begins
  std::uint64_t lines_ = 0;    // lines of the file in hand
  std::uint64_t earlier_ = 0;  // lines of the files before it
  Row block_;                  // the head of the lines below it
  std::string plain_;          // a line without its escape sequences
  std::string unpacked_;       // a line of Docker's
};

}  // namespace oddrank::metrics
