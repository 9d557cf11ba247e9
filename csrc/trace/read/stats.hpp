// How much a process has recorded, what was lost, and where its time went.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/read/snapshot.hpp"

namespace oddrank::trace {

// One code object within the window: what is left in the rings of all threads.
struct CodeUse {
  Frame frame;  // its line is the first one of the code
  std::uint64_t events = 0;
  std::uint64_t calls = 0;        // that began in the window; goings-on of generators too
  std::optional<double> seconds;  // between call and return, in it and in all that it has called
  std::optional<double> own;      // without calls that are recorded
};

struct Stats {
  Process process;
  Life life = Life::kUnknown;
  Counters counters;
  std::uint64_t threads = 0;
  std::uint64_t events = 0;    // ever, of the threads that still have a place in the record
  std::uint64_t window = 0;    // of those, what is still in the rings
  std::uint64_t lines = 0;     // of those in the rings, how many are lines
  Time begin;                  // when it was armed
  Time end;                    // now if it is alive, else its last event; calls that run end then
  Time window_begin;           // the main thread's oldest event that is left
  std::vector<CodeUse> codes;  // the busiest by events and the busiest by own time, in no order
  std::string trouble;         // what could not be read; empty: nothing
};

// Up to `most` codes by each of both measures.
Stats read_stats(const RecordFile& file, std::size_t most);

}  // namespace oddrank::trace
