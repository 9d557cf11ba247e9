// The one rule of the judge: a series of numbers is odd where it rises above its past.
//
// Windows of 3, 16, 64 and 256 rows are compared by their medians with the level before them and
// with the best level so far, on a logarithmic scale, or on a linear one once a value is below 0.
// A window is odd if its excess is beyond three limits: the least that matters, 9 times the noise
// of rows or 7 times windows' noise, and 1.5 times the largest excess that came back by itself. All
// 3 rows must be beyond the noise; of longer windows, two in a row beyond the limits.
#pragma once

#include <deque>
#include <vector>

#include "metrics/row.hpp"

namespace oddrank::metrics {

// The least excesses that matter, as logarithms.
struct Limits {
  double one;    // excess of a single row; 0: it is never odd
  double few;    // excess of 3 rows
  double step;   // excess of a window above the level before it
  double drift;  // excess of a window above the best level so far
  double sign;   // -1: lower is worse
};

struct Change {
  std::string_view shape;   // spike: seen in 3 rows; step; drift: seen against the best level
  double first = kUnknown;  // iteration where it began, within one window
  double at = kUnknown;     // iteration of the worst value
  double until = kUnknown;  // iteration where it was over
  double level = kUnknown;  // before it
  double value = kUnknown;  // the worst one of a spike, else the median of the rows since it began
  double count = 0;         // rows since it began
  double known = 0;         // rows before it
};

class Series {
 public:
  enum class Event : std::uint8_t { none, began, grew, over };
  // Rows before anything is judged.
  static constexpr std::size_t kLeast = 12;

  explicit Series(const Limits& limits) : limits_(limits) { reset(); }

  // Takes the value of the next row. first: its iteration, or its first row's.
  // briefly: whether 3 rows are enough, or 8.
  Event add(double value, double iteration, double first, bool briefly = true);
  // Learns the level anew: other work begins.
  void reset();
  // The training goes back to this iteration, and so do the levels.
  void rewind(double iteration);

  // The change of the last event.
  const Change& change() const { return change_; }
  // Rows that were judged.
  std::uint64_t judged() const { return judged_; }

 private:
  struct Value {
    double value;
    double iteration;
    double first;
  };
  // Where something began: its iteration, and the rows before it.
  struct Place {
    double iteration = 0;
    double rows = 0;
  };
  struct Level {
    double last;  // the window's last iteration
    double median;
    double best;    // median of the best window so far
    Place settled;  // behind the last window that was as good as the best one
  };
  struct Window {
    std::size_t size;
    std::vector<Value> rows;
    std::deque<Level> levels;
    double returned = 0;  // the largest excess that came back
    double excess = 0;    // the largest one since the best level
    bool was_odd = false;
    Place odd;  // where the odd window before began
  };

  double scaled(double value) const;
  double unscaled(double value) const;
  double median(const std::deque<Value>& values, std::size_t last) const;
  void begin(std::string_view shape, Place first, double level, double limit, std::size_t width);
  Event go_on(const Value& row);
  bool judge_rows(const Value& row, std::size_t few);
  bool judge_window(Window& window);
  void learn(const Value& row);
  void refresh();

  Limits limits_;
  std::array<Window, 3> windows_;
  std::deque<Value> rows_;         // rows of the level
  std::deque<Value> held_;         // since a change began, at most kHeld
  std::deque<double> deviations_;  // from the level at that time
  std::deque<Value> last_;         // rows that are judged by themselves
  bool linear_ = false;
  double unit_ = 1;                 // unit of the linear scale
  double level_ = 0;                // median of the last rows
  double noise_ = 0, earlier_ = 0;  // earlier_: the noise 8 rows or more ago
  double returned_ = 0;
  double excess_ = 0;
  std::uint64_t seen_ = 0;  // rows that the level was learned from
  std::uint64_t judged_ = 0;

  Change change_;
  bool open_ = false;     // it is not over
  bool adopted_ = false;  // it has lasted so long that it is the level now
  double from_ = 0;       // its level, scaled
  double back_ = 0;       // the excess below which it is over
  double worst_ = 0;
  std::size_t width_ = 0;
};

// Adds a value to a ring that holds the last `most`.
template <class Value>
void push_bounded(std::deque<Value>& ring, const Value& value, std::size_t most) {
  ring.push_back(value);
  if (ring.size() > most) ring.pop_front();
}

// Returns the median of values, which must not be empty.
double median_of(std::vector<double> values);

}  // namespace oddrank::metrics
