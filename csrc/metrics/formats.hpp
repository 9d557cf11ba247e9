// The words of training frameworks' lines: tables. The only place that knows them.
//
// A line is read by one rule: each number belongs to the words before it, back to the number or the
// separator before; "loss: 2.5", "loss=2.5", "'loss': 2.5", "| lm loss 2.5 |" are the same. A
// number without words belongs to its unit: "(2300.55 ms | 227910 tok/s)".
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "metrics/row.hpp"

namespace oddrank::metrics {

// A number of a line: its words in small letters, which are several in the table; where it goes.
struct Field {
  std::string_view key;
  Column column;
  std::uint8_t weight = 1;  // takes the place of a number of less weight
  double scale = 1;         // 0: the unit stands behind it (ms), or it is a date; below 0: inverse
};

// A word of lines on the job's work between two iterations.
struct Sign {
  std::string_view word;
  Row::Kind kind;
};

// Each line with numbers has one of these words, at least 6 bytes long.
std::span<const std::string_view> anchors();
std::span<const Sign> signs();

// Begin of a line's numbers, for the text before them.
struct Found {
  std::size_t begin = kNowhere;
  bool is_block = false;  // [step=10/739328,epoch=0]: the lines below are of this iteration
  bool is_dict = false;   // 'loss': 2.5
};
// Reads the numbers of a line into a row.
Found read_fields(std::string_view text, Row& row);
// Takes a number from the front of a text, as frameworks print them: 2.35E+00, 89,241, +2, nan,
// -inf. Returns false, and moves nothing, if there is none.
bool take_number(std::string_view& text, double& value);
// Takes a duration: 1d 2h 3m 4s, 1:02:03, or 1 day, 1:02:03.
bool take_duration(std::string_view& text, double& seconds);
// Returns whether a row says something of an iteration.
bool says(const Row& row);

// A line that users describe: "it#{iteration} L={loss}".
class Pattern {
 public:
  Pattern() = default;
  // Throws Error if the text names no column, or an unknown one.
  explicit Pattern(std::string_view text);
  bool empty() const { return parts_.empty(); }
  // Returns where the line begins to fit; npos if it does not.
  std::size_t read(std::string_view line, Row& row) const;

 private:
  std::vector<std::pair<std::string, Column>> parts_;  // the text before a number, and its column
};

// The columns of a CSV file, between commas, semicolons or tabs.
class Csv {
 public:
  Csv() = default;
  explicit Csv(std::string_view header);
  // Returns whether the header was none of a training's.
  bool empty() const { return columns_.empty(); }
  bool read(std::string_view line, Row& row) const;

 private:
  std::string_view cell(std::string_view& line) const;

  char separator_ = ',';
  std::vector<const Field*> columns_;
};

}  // namespace oddrank::metrics
