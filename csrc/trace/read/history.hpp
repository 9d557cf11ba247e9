// What a process did last: the events of its threads and its marks, in one order.
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
  std::uint64_t source_hash = 0;  // of frame.file as it was; 0: not known
  std::string mark;               // its text; of a step "step N"
};

struct History {
  Process process;
  std::vector<HistoryEvent> events;  // oldest first
  std::string trouble;               // of the dictionary; empty: nothing
};

// The last `last` events and marks of all threads together. Throws Error where there is no record.
History read_history(const std::string& path, std::size_t last);

}  // namespace oddrank::trace
