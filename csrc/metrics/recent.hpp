// How fast a training is now: pace and throughput of its last rows, for tables and gauges. Judges
// nothing: detectors compare with many more rows than people mean by "now".
#pragma once

#include <cstddef>
#include <deque>
#include <string_view>

#include "metrics/row.hpp"

namespace oddrank::metrics {

// A measure of speed. Those of one GPU come first: the others change with the number of GPUs.
struct Speed {
  std::string_view unit;
  double value = kUnknown;
  bool per_gpu = false;
};
// Returns the best measure that a row has. `gap`: seconds since the row before, or unknown.
Speed speed_of(const Row& row, double iterations, double gap);

// The time before a row that is beyond the usual one.
struct Pause {
  double seconds = 0;     // 0: as long as usual
  bool is_stall = false;  // it is not expected again
};

class Recent {
 public:
  // iterations, gap: since the row before, as for speed_of().
  void add(const Row& row, double iterations, double gap, Pause pause);
  // Forgets all rows: from now on they are of another run, or of other work.
  void reset();

  // Seconds of an iteration, without pauses. Where lines state it: the median of the last rows.
  // Else by the clock.
  double pace() const;
  // Seconds of pauses an iteration, stalls left out. A single pause is not expected again.
  double pauses() const;
  // The median of the last rows. unit: the one to give; "": that of the last row.
  Speed speed(std::string_view unit) const;

 private:
  struct Entry {
    double iterations;
    double stated;  // seconds of an iteration, as the line says
    double gap;
    Pause pause;
    Speed speed;
  };
  double pace_by_clock() const;

  std::deque<Entry> rows_;
  bool was_long_ = false;
};

}  // namespace oddrank::metrics
