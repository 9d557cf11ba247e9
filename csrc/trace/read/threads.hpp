// What each thread of a record does and did: its stack now and its last events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/read/file.hpp"

namespace oddrank::trace {

// Places come as they stand: a code id may be in no dictionary, a kind in no enum.
struct Thread {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // of the slot
  ThreadState state = ThreadState::kFree;
  std::uint32_t tid = 0;
  std::uint64_t python_id = 0;
  std::string name;            // bytes of the writer's
  std::uint64_t depth = 0;     // frames, of which the stack has at most its room
  std::vector<Place> stack;    // outermost first; if cut, the last one is the innermost frame
  bool cut = false;            // deeper than its room
  bool torn = false;           // it changed in every try: frames of different moments
  std::uint64_t events = 0;    // ever written to its ring
  std::uint32_t capacity = 0;  // of its ring; 0: none, or none that can be read
};

struct Threads {
  std::vector<Thread> list;  // without free slots
  // Slots whose state or sizes no writer leaves so. Of those, only what has a broken ring is
  // listed.
  std::uint32_t broken = 0;
};

// Looks at a stack that changes meanwhile up to `tries` times.
constexpr unsigned kTries = 16;
Threads read_threads(const RecordFile& file, unsigned tries = kTries);

// A slot without its stack.
struct Ring {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t tid = 0;
  std::uint64_t events = 0;    // ever written to it
  std::uint32_t capacity = 0;  // 0: the events are counted, and kept nowhere
};

// The rings of all threads that write or have written, up to the first slot that nobody ever had.
std::vector<Ring> read_rings(const RecordFile& file);

struct Moment {
  std::uint64_t tsc = 0;
  Place place;
};

struct Events {
  std::uint32_t generation = 0;   // of the slot: compare it with the thread's
  std::uint64_t first = 0;        // the number of list[0]; they count from 0
  std::uint64_t overwritten = 0;  // while they were copied: asked for, and gone
  std::vector<Moment> list;       // oldest first
};

// How many events from number `first` on can't be believed in a ring of `room`, of which `now` are
// published: event i lies where event i + room does, and the writer may be at work on number `now`.
constexpr std::uint64_t overwritten(std::uint64_t first, std::uint64_t room,
                                    std::uint64_t now) noexcept {
  return now - first >= room ? now - first - room + 1 : 0;
}

// The last `last` events of a slot, at most its ring less one: the oldest place is always being
// overwritten. Empty for a free or broken slot.
Events read_events(const RecordFile& file, std::uint32_t slot, std::uint64_t last);
// All that are left, up to the moment when the thread was looked at: then its stack is what runs
// behind the last one. `thread` is looked at again if none are left from before. None where another
// thread has taken its slot since.
Events read_events(const RecordFile& file, Thread& thread);

}  // namespace oddrank::trace
