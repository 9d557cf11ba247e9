// Finds where a noisy series leaves its level upwards: the test behind spikes and drops.
//
// The level is the median of the last values, the scale that of their deviations. Once a value is
// beyond the line, each further one adds evidence: -log10 of how rarely the series' own innovations
// were as large, in all of its past. Innovations, not deviations: of a series that drifts, each
// deviation follows from the one before it. Beyond the largest one seen, the tail falls by a power.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "metrics/row.hpp"

namespace oddrank::metrics {

struct Rule {
  double floor;             // the smallest deviation that begins an excursion
  double effect;            // the smallest deviation that is worth a word
  std::size_t effect_rank;  // the n-th largest of an excursion must reach it
  std::size_t rows;         // an excursion needs so many
  int back;                 // so many values below the line end it
  double tail;              // exponent of the tail
  std::size_t window;       // values that make the level
};

class Excursion {
 public:
  enum class Event { none, fired, recovered };

  explicit Excursion(const Rule& rule) : rule_(rule) {}

  // Fires once in 10^8 rows of a healthy series.
  static constexpr double kEvidence = 8;

  // Takes the next value. rows: how many an excursion needs, 0: as its rule says. evidence: less
  // is enough where another series says the same.
  Event add(double value, double iteration, std::size_t rows = 0, double evidence = kEvidence);
  void reset();

  bool is_away() const { return away_; }
  bool has_fired() const { return fired_; }
  double level() const { return level_; }
  double scale() const { return scale_; }
  double first() const { return first_; }        // iteration where it began
  double peak() const { return peak_; }          // the largest deviation
  double peak_at() const { return peak_at_; }    // its iteration
  double typical() const;                        // the median deviation
  double recovered() const { return back_at_; }  // iteration of the first value back
  std::size_t rows() const { return rows_; }     // beyond the line

 private:
  void accept(double value, double deviation);
  void refresh();
  double rarity(double innovation) const;
  double company() const;
  void end(bool keep);

  Rule rule_;
  std::deque<double> window_;
  std::deque<double> deviations_;
  std::deque<double> innovations_;
  std::size_t fresh_ = 0;  // values since the last refresh of the level
  std::size_t stale_ = 0;  // the same of the scale
  double level_ = 0;
  double scale_ = 0;
  double memory_ = 0;    // lag-1 correlation of the deviations
  double largest_ = 0;   // innovation of the past
  double last_ = 0;      // deviation
  double runs_ = 0;      // excursions that were none, of late
  double run_rows_ = 0;  // their rows
  double all_ = 0;       // all rows of late

  bool away_ = false;
  bool fired_ = false;
  std::size_t rows_ = 0;
  double evidence_ = 0;
  double first_ = kUnknown;
  double peak_ = 0;
  double peak_at_ = kUnknown;
  double back_at_ = kUnknown;
  std::vector<double> held_;    // values since the excursion began, at most kAdopt
  std::vector<double> beyond_;  // deviations beyond the line
  std::vector<double> steps_;   // innovations of these
  int back_ = 0;
};

// Finds a lasting shift of a level in noise that hides it row by row: compares medians of blocks
// with those of the blocks before. The spread of the blocks themselves says what is usual, so slow
// waves of a healthy job widen it.
class BlockShift {
 public:
  BlockShift(std::size_t width, double effect) : width_(width), effect_(effect) {}

  // Takes the next value. Returns whether two blocks in a row lie above the line.
  bool add(double value, double iteration);
  void reset();
  double first() const { return first_; }
  double level() const { return level_; }
  double shift() const { return shift_; }

 private:
  std::size_t width_;
  double effect_;
  std::vector<double> block_;
  std::deque<double> history_;
  double began_ = kUnknown;  // iteration of the block in hand
  double first_ = kUnknown;
  double level_ = 0;
  double shift_ = 0;
  double suspect_ = kUnknown;  // median of the block that waits for a second one
};

// Adds a value to a ring that holds the last `most`.
template <class Value>
void push_bounded(std::deque<Value>& ring, const Value& value, std::size_t most) {
  ring.push_back(value);
  if (ring.size() > most) ring.pop_front();
}

// Returns the median. Reorders the values, which must not be empty.
double median_of(std::vector<double>& values);

}  // namespace oddrank::metrics
