// Reads the last events and marks of all threads, in order of time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/read/snapshot.hpp"

namespace oddrank::trace {

struct HistoryEvent {
  std::uint64_t tsc = 0;
  Time time;
  std::uint32_t tid = 0;
  Kind kind = Kind::kNone;  // kNone: a mark
  Frame frame;
  std::uint64_t source_hash = 0;  // of frame.file when it ran; 0: unknown
  std::string mark;               // its text; "step N" for a step
};

struct History {
  Process process;
  std::vector<HistoryEvent> events;  // oldest first
  std::string trouble;               // fault of the dictionary; empty if there is none
};

// Returns the last `last` events and marks of all threads. Throws Error if there is no record.
History read_history(const std::string& path, std::size_t last);

}  // namespace oddrank::trace
