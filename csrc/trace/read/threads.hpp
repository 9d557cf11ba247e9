// Reads the threads of a record: current stack, last events, and new events again and again.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/read/file.hpp"

namespace oddrank::trace {

// `stack` is unchecked: a broken file may hold unknown code ids and kinds.
struct Thread {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // of the slot
  ThreadState state = ThreadState::kFree;
  std::uint32_t tid = 0;
  std::uint64_t python_id = 0;
  std::string name;            // the writer's bytes
  std::uint64_t depth = 0;     // number of frames; `stack` may hold fewer
  std::vector<Place> stack;    // outermost first; if cut, the last one is the innermost frame
  bool cut = false;            // depth exceeds the stack's room
  bool torn = false;           // changed during every read: frames of different moments
  std::uint64_t sampled = 0;   // ticks of the last sample of the stack; 0: none
  std::uint64_t events = 0;    // ever written to its ring
  std::uint32_t capacity = 0;  // its ring's size in events; 0: no readable ring
};

struct Threads {
  std::vector<Thread> list;  // without free slots
  // Number of slots with an impossible state or size. `list` has those with only a broken ring.
  std::uint32_t broken = 0;
};

// Reads a stack again, up to `tries` times, while it changes.
constexpr unsigned kTries = 16;
Threads read_threads(const RecordFile& file, unsigned tries = kTries);

struct Moment {
  std::uint64_t tsc = 0;
  Place place;
};

struct Events {
  std::uint32_t generation = 0;   // of the slot; compare with the thread's
  std::uint64_t first = 0;        // number of list[0], counted from 0
  std::uint64_t overwritten = 0;  // requested events that were overwritten during the copy
  std::vector<Moment> list;       // oldest first
};

// Returns how many events from number `first` on are unreliable in a ring of `room` events, if
// `now` events are published: event i shares its slot with event i + room, and the writer may be
// writing event `now`.
constexpr std::uint64_t overwritten(std::uint64_t first, std::uint64_t room,
                                    std::uint64_t now) noexcept {
  return now - first >= room ? now - first - room + 1 : 0;
}

// Returns the last `last` events of a slot, at most the ring's size - 1: the oldest entry may be
// half overwritten. Empty for a free or broken slot.
Events read_events(const RecordFile& file, std::uint32_t slot, std::uint64_t last);
// Returns the last event that its thread has made. A gap counts only if there is nothing else:
// another thread may have noted it.
Events read_last_event(const RecordFile& file, std::uint32_t slot);
// Returns the events that precede the read of `thread`, so that its stack is the state after the
// last one. Reads `thread` again if they are all overwritten. Empty if another thread took its
// slot.
Events read_events(const RecordFile& file, Thread& thread);

// An event of any thread.
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
  void read(std::deque<FedEvent>& to, std::uint32_t silent);

 private:
  struct Position {
    std::uint32_t generation = 0;
    std::uint64_t events = 0;  // ever written to the ring, as far as it was read
  };
  RecordFile file_;
  std::unordered_map<std::uint32_t, Position> positions_;  // by slot
};

}  // namespace oddrank::trace
