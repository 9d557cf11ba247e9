// Keeps a position for each slot and merges the later events of all slots.
#include "trace/nicer/feed.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace oddrank::trace {
namespace {

void add_missing(std::uint64_t count, std::uint64_t tsc, std::uint32_t tid,
                 std::vector<FedEvent>& to) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  for (; count > 0; count -= std::min(count, kMost)) {
    to.push_back({tsc, Place{}, tid, static_cast<std::uint32_t>(std::min(count, kMost))});
  }
}

}  // namespace

EventFeed::EventFeed(RecordFile file, bool from_now) : file_(std::move(file)) {
  if (!from_now) return;
  for (const Ring& ring : read_rings(file_)) positions_[ring.slot] = {ring.generation, ring.events};
}

void EventFeed::read(std::vector<FedEvent>& to, std::uint32_t silent) {
  const auto begin = static_cast<std::ptrdiff_t>(to.size());
  unsigned threads = 0;
  for (const Ring& ring : read_rings(file_)) {
    Position& position = positions_[ring.slot];
    if (position.generation != ring.generation) position = {ring.generation, 0};
    if (ring.events <= position.events) continue;
    if (ring.tid == silent) {
      position.events = ring.events;
      continue;
    }
    read_ring(ring, position, to);
    ++threads;
  }
  if (threads > 1)
    std::stable_sort(to.begin() + begin, to.end(),
                     [](const auto& a, const auto& b) { return a.tsc < b.tsc; });
}

void EventFeed::read_ring(const Ring& ring, Position& position, std::vector<FedEvent>& to) {
  const std::uint64_t wanted = ring.events - position.events;
  const Events events = read_events(file_, ring.slot, wanted);
  const bool same = events.generation == ring.generation && !events.list.empty();
  if (!same) {
    // There is no ring, or another thread has it now. Take the time from the last other event.
    add_missing(wanted, to.empty() ? 0 : to.back().tsc, ring.tid, to);
    position.events = ring.events;
    return;
  }
  // Events written during this read wait for the next one. The oldest wanted may be overwritten.
  const std::uint64_t first = std::max(events.first, position.events);
  add_missing(first - position.events, events.list.front().tsc, ring.tid, to);
  for (std::size_t i = first - events.first; i < events.list.size(); ++i) {
    to.push_back({events.list[i].tsc, events.list[i].place, ring.tid, 0});
  }
  position.events = events.first + events.list.size();
}

}  // namespace oddrank::trace
