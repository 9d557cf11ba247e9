// Measures how regularly each writer of a log speaks: in time where lines name one, and in lines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "logs/pieces.hpp"
#include "logs/timestamps.hpp"
#include "logs/writers.hpp"

namespace oddrank::logs {

// Distances between the lines of one writer, in nanoseconds or in lines of the log.
class Gaps {
 public:
  void add(std::int64_t gap);
  std::int64_t longest() const { return longest_; }
  std::uint64_t count() const { return count_; }
  // Returns a length that `part` of the gaps do not exceed: too long by a factor of up to 2.
  std::int64_t quantile(double part) const;

 private:
  std::array<std::uint32_t, 64> buckets_{};  // by the number of bits
  std::uint64_t count_ = 0;
  std::int64_t longest_ = 0;
};

struct Rhythm {
  std::uint64_t lines = 0;
  std::uint64_t first_line = 0;
  std::uint64_t last_line = 0;
  std::int64_t first_ns = 0;  // 0: no line named a time
  std::int64_t last_ns = 0;
  Gaps in_lines;
  Gaps in_time;
};

class Rhythms {
 public:
  explicit Rhythms(WriterNumbers::Ask number) : numbers_(std::move(number)) {}

  // Makes a place for a writer and returns its number.
  std::size_t add();

  // reference_ns: for times without a year. arrival_ns: if not 0, the time of all lines, as long as
  // no line names one.
  void feed(std::string_view chunk, std::int64_t reference_ns, std::int64_t arrival_ns);
  // Ends the file that was fed.
  void finish(std::int64_t reference_ns, std::int64_t arrival_ns);

  const std::vector<Rhythm>& all() const { return all_; }
  std::uint64_t lines() const { return lines_; }
  std::int64_t last_ns() const { return last_ns_; }

 private:
  void take(const Piece& piece, std::int64_t reference_ns, std::int64_t arrival_ns);
  std::optional<std::int64_t> time_of(const Piece& piece, std::int64_t reference_ns);
  void forget_times();

  WriterNumbers numbers_;
  PieceReader reader_;
  std::vector<Rhythm> all_;
  std::uint64_t lines_ = 0;
  std::int64_t last_ns_ = 0;
  std::optional<Timestamp::Clock>
      clock_;  // of the first time in this file: others are not compared
};

}  // namespace oddrank::logs
