// Reads the new events of a process's rings since the last read.
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
  // If not 0, this is not an event: this many events of the thread are lost.
  std::uint32_t missing = 0;
};

// Reads each event once, or counts it as missing if it was overwritten. Its owner calls read()
// before a ring is full and before a thread gets the ring of an ended one (Recorder::listener).
class EventFeed {
 public:
  // `from_now`: skips events that are already recorded.
  EventFeed(RecordFile file, bool from_now);

  const RecordFile& file() const noexcept { return file_; }
  // Appends new events, oldest first (in order across threads, if no thread writes meanwhile).
  // Skips the thread `silent`.
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
