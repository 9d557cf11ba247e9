// All that a process records, in parts: what is new in its rings since one looked last.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trace/read/threads.hpp"

namespace oddrank::trace {

struct FedEvent {
  std::uint64_t tsc = 0;
  Place place;
  std::uint32_t tid = 0;
  // Not 0: no event, but so many of this thread that are gone.
  std::uint32_t missing = 0;
};

// Reads each event once, or tells exactly how many it came too late for. Its owner calls it before
// a ring has gone round (Recorder::listener), and before a thread gets the ring of one that ended.
class EventFeed {
 public:
  // What has been recorded before counts as read if `from_now`.
  EventFeed(RecordFile file, bool from_now);

  const RecordFile& file() const noexcept { return file_; }
  // Appends what is new, oldest first; the threads' events are in one order as long as nobody
  // writes meanwhile. Passes over the thread `silent`.
  void read(std::vector<FedEvent>& to, std::uint32_t silent);

 private:
  struct Position {
    std::uint32_t generation = 0;
    std::uint64_t events = 0;
  };
  void read_ring(const Ring& ring, Position& position, std::vector<FedEvent>& to);

  RecordFile file_;
  std::unordered_map<std::uint32_t, Position> positions_;  // by slot
};

}  // namespace oddrank::trace
