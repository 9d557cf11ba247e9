// Counts a process's recorded and lost events, and sums up its time by code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/read/snapshot.hpp"

namespace oddrank::trace {

// One code object in the window: the events left in the rings of all threads.
struct CodeUse {
  Frame frame;  // `line` is the code's first line
  std::uint64_t events = 0;
  std::uint64_t calls = 0;        // begun in the window, including resumed generators
  std::optional<double> seconds;  // between call and return, callees included
  std::optional<double> own;      // without recorded callees
};

struct Stats {
  Process process;
  Liveness life = Liveness::kUnknown;
  Counters counters;
  std::uint64_t threads = 0;
  std::uint64_t events = 0;    // ever recorded by threads that still have a slot
  std::uint64_t window = 0;    // events still in the rings
  std::uint64_t lines = 0;     // line events still in the rings
  Time begin;                  // when it was armed
  Time end;                    // now, or a dead process's last event or mark
  Time window_begin;           // oldest event in the main thread's ring
  std::vector<CodeUse> codes;  // the busiest by own time and by events
  std::string trouble;         // why parts could not be read; empty if all could
};

// Returns the statistics, with up to `most` codes by each of the two measures.
Stats read_stats(const RecordFile& file, std::size_t most);

}  // namespace oddrank::trace
