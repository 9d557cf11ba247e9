// Copies slots and rings, then checks whether the writer overwrote the copied part.
#include "trace/read/threads.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <utility>

namespace oddrank::trace {
namespace {

// More threads than any process has. Bounds the time for a hostile file.
constexpr std::uint32_t kMostSlots = 1 << 16;
// Most reads of one thread's events. A read takes about 50 us, in which a busy thread can fill a
// small ring: a busy rank costs its reader a few milliseconds.
constexpr unsigned kLooks = 64;

// A copy of a slot without its stack.
struct SlotHead {
  alignas(ThreadSlot) unsigned char bytes[sizeof(ThreadSlot)];
  const ThreadSlot& slot() const noexcept { return *reinterpret_cast<const ThreadSlot*>(bytes); }

  std::uint64_t state_word() const noexcept { return value_of(slot().state); }
  std::uint32_t state() const noexcept { return static_cast<std::uint32_t>(state_word()); }
  std::uint32_t generation() const noexcept {
    return static_cast<std::uint32_t>(state_word() >> 32);
  }
  bool in_use() const noexcept {
    return state() == static_cast<std::uint32_t>(ThreadState::kLive) ||
           state() == static_cast<std::uint32_t>(ThreadState::kEnded);
  }
  std::uint64_t depth() const noexcept { return value_of(slot().depth); }
};

std::uint64_t offset_of(const RecordFile& file, std::uint32_t slot) noexcept {
  return file.layout().threads.offset + std::uint64_t{slot} * file.layout().threads.stride;
}

// Orders the copies before and after it.
void then() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }

// One copy may read its bytes in any order, and show the state of the slot's next thread beside the
// name or tid of the last one. So copies the state first: if another thread has taken the slot
// meanwhile, the next copy shows another state.
SlotHead read_head(const RecordFile& file, std::uint32_t slot) {
  unsigned char state[sizeof(ThreadSlot::state)];
  file.copy(offset_of(file, slot) + offsetof(ThreadSlot, state), state, sizeof state);
  then();
  SlotHead head;
  file.copy(offset_of(file, slot), head.bytes, sizeof head.bytes);
  std::ranges::copy(state, head.bytes + offsetof(ThreadSlot, state));
  return head;
}

bool same_picture(const SlotHead& a, const SlotHead& b) noexcept {
  return a.state_word() == b.state_word() && a.depth() == b.depth() &&
         value_of(a.slot().changes) == value_of(b.slot().changes);
}

bool has_good_stack(const RecordFile& file, const SlotHead& head) noexcept {
  const std::uint64_t room = (file.layout().threads.stride - sizeof(ThreadSlot)) / sizeof(Word);
  return head.slot().stack_room > 0 && head.slot().stack_room <= room;
}

bool has_good_ring(const RecordFile& file, const SlotHead& head) noexcept {
  const Region& rings = file.layout().rings;
  const std::uint64_t offset = head.slot().ring_offset;
  const std::uint64_t bytes = std::uint64_t{head.slot().ring_events} * sizeof(Event);
  return std::has_single_bit(head.slot().ring_events) && offset % sizeof(Word) == 0 &&
         offset >= rings.offset && bytes <= rings.bytes() &&
         offset - rings.offset <= rings.bytes() - bytes;
}

std::vector<Place> read_stack(const RecordFile& file, const SlotHead& head, std::uint32_t slot) {
  const std::uint64_t shown = std::min<std::uint64_t>(head.depth(), head.slot().stack_room);
  std::vector<Place> stack(shown);
  static_assert(sizeof(Place) == sizeof(Word));
  file.copy(offset_of(file, slot) + sizeof(ThreadSlot), stack.data(), shown * sizeof(Place));
  return stack;
}

// Returns false if the slot became free or broken, or another thread took it.
bool read_thread(const RecordFile& file, std::uint32_t slot, SlotHead head, unsigned tries,
                 Thread& thread) {
  // Uses the fields read before the stack: they are this thread's if the generation is the same
  // after it.
  SlotHead shown = head;
  thread.torn = true;
  for (unsigned tried = 0; thread.torn && (tried < tries || tried == 0); ++tried) {
    shown = head;
    thread.stack = read_stack(file, shown, slot);
    then();
    head = read_head(file, slot);
    if (!head.in_use() || !has_good_stack(file, head)) return false;
    thread.torn = !same_picture(shown, head);
  }
  // Another thread took the slot during the copy: the fields may be mixed.
  if (head.generation() != shown.generation()) return false;
  const ThreadSlot& last = shown.slot();
  thread.slot = slot;
  thread.generation = shown.generation();
  thread.state = static_cast<ThreadState>(shown.state());
  thread.tid = last.tid;
  thread.python_id = last.python_id;
  thread.name = text_of(last.name);
  thread.depth = shown.depth();
  thread.cut = thread.depth > thread.stack.size();
  thread.sampled = value_of(last.sampled);
  thread.events = value_of(last.head);
  if (has_good_ring(file, shown)) thread.capacity = last.ring_events;
  return true;
}

// Calls `see` with number and head of each slot of a thread, live or ended.
void for_each_ring(const RecordFile& file, auto see) {
  const std::uint32_t slots = std::min(file.layout().threads.count, kMostSlots);
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const SlotHead head = read_head(file, slot);
    if (head.state_word() == 0) break;
    if (head.in_use()) see(slot, head);
  }
}

void add_missing(std::uint64_t count, std::uint64_t tsc, std::uint32_t tid,
                 std::deque<FedEvent>& to) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  for (; count > 0; count -= std::min(count, kMost)) {
    to.push_back({tsc, Place{}, tid, static_cast<std::uint32_t>(std::min(count, kMost))});
  }
}

}  // namespace

Threads read_threads(const RecordFile& file, unsigned tries) {
  Threads threads;
  const std::uint32_t count = std::min(file.layout().threads.count, kMostSlots);
  // Rings don't overlap. This limit stops a hostile file from having one large ring read per slot.
  std::uint64_t room = file.layout().rings.bytes() / sizeof(Event);
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    const SlotHead head = read_head(file, slot);
    if (head.state() == static_cast<std::uint32_t>(ThreadState::kFree)) continue;
    if (!head.in_use() || !has_good_stack(file, head)) {
      ++threads.broken;
      continue;
    }
    if (head.slot().ring_events != 0 && !has_good_ring(file, head)) ++threads.broken;
    Thread thread;
    if (!read_thread(file, slot, head, tries, thread)) continue;
    if (thread.capacity > room) {
      thread.capacity = 0;
      ++threads.broken;
    }
    room -= thread.capacity;
    threads.list.push_back(std::move(thread));
  }
  return threads;
}

Events read_events(const RecordFile& file, std::uint32_t slot, std::uint64_t last) {
  Events events;
  if (slot >= std::min(file.layout().threads.count, kMostSlots)) return events;
  const SlotHead before = read_head(file, slot);
  if (!before.in_use() || !has_good_ring(file, before)) return events;
  events.generation = before.generation();
  const std::uint64_t room = before.slot().ring_events;
  const std::uint64_t end = value_of(before.slot().head);
  const std::uint64_t asked = std::min({last, end, room - 1});
  events.first = end - asked;

  // One or two runs: up to the ring's end, and from its start.
  std::vector<std::uint64_t> words(asked * 2);
  const std::uint64_t start = events.first % room;
  const std::uint64_t run = std::min(asked, room - start);
  const std::uint64_t ring = before.slot().ring_offset;
  then();
  file.copy(ring + start * sizeof(Event), words.data(), run * sizeof(Event));
  file.copy(ring, words.data() + run * 2, (asked - run) * sizeof(Event));
  then();

  const SlotHead after = read_head(file, slot);
  const std::uint64_t now = value_of(after.slot().head);
  const bool same_writer = after.in_use() && after.generation() == before.generation() &&
                           after.slot().ring_offset == ring && after.slot().ring_events == room &&
                           now >= end;
  events.overwritten = same_writer ? std::min(asked, overwritten(events.first, room, now)) : asked;
  for (std::uint64_t i = events.overwritten; i < asked; ++i) {
    events.list.push_back({words[2 * i], Place{words[2 * i + 1]}});
  }
  events.first += events.overwritten;
  return events;
}

Events read_last_event(const RecordFile& file, std::uint32_t slot) {
  Events events = read_events(file, slot, 2);
  if (events.list.size() < 2) return events;
  if (events.list.back().place.kind() == Kind::kGap) {
    events.list.pop_back();
  } else {
    events.list.erase(events.list.begin());
    ++events.first;
  }
  return events;
}

Events read_events(const RecordFile& file, Thread& thread) {
  for (unsigned look = 0; look < kLooks && thread.capacity > 0 && thread.events > 0; ++look) {
    Events events = read_events(file, thread.slot, std::numeric_limits<std::uint64_t>::max());
    if (events.generation != thread.generation) break;
    if (events.first < thread.events && !events.list.empty()) {
      const std::uint64_t before = thread.events - events.first;
      if (before < events.list.size()) events.list.resize(before);
      return events;
    }
    // The thread has overwritten its whole ring since it was read.
    const SlotHead head = read_head(file, thread.slot);
    Thread now;
    const bool is_same = head.in_use() && head.generation() == thread.generation;
    if (!is_same || !has_good_stack(file, head)) break;
    if (!read_thread(file, thread.slot, head, kTries, now)) break;
    now.capacity = std::min(now.capacity, thread.capacity);
    thread = std::move(now);
  }
  return {};
}

EventFeed::EventFeed(RecordFile file, bool from_now) : file_(std::move(file)) {
  if (!from_now) return;
  for_each_ring(file_, [this](std::uint32_t slot, const SlotHead& head) {
    positions_[slot] = {head.generation(), value_of(head.slot().head)};
  });
}

void EventFeed::read(std::deque<FedEvent>& to, std::uint32_t silent) {
  const auto begin = static_cast<std::ptrdiff_t>(to.size());
  unsigned threads = 0;
  for_each_ring(file_, [&](std::uint32_t slot, const SlotHead& head) {
    Position& position = positions_[slot];
    if (position.generation != head.generation()) position = {head.generation(), 0};
    const std::uint64_t written = value_of(head.slot().head);
    const std::uint32_t tid = head.slot().tid;
    if (written <= position.events) return;
    const std::uint64_t wanted = written - std::exchange(position.events, written);
    if (tid == silent) return;
    ++threads;
    const Events events = read_events(file_, slot, wanted);
    if (events.generation != head.generation() || events.list.empty()) {
      // There is no ring, or another thread has it now. Take the time from the last other event.
      add_missing(wanted, to.empty() ? 0 : to.back().tsc, tid, to);
      return;
    }
    // Events written during this read wait for the next one. The oldest wanted may be overwritten.
    const std::uint64_t first = std::max(events.first, written - wanted);
    add_missing(first - (written - wanted), events.list.front().tsc, tid, to);
    for (std::size_t i = first - events.first; i < events.list.size(); ++i) {
      to.push_back({events.list[i].tsc, events.list[i].place, tid, 0});
    }
    position.events = events.first + events.list.size();
  });
  if (threads > 1) std::ranges::stable_sort(to.begin() + begin, to.end(), {}, &FedEvent::tsc);
}

}  // namespace oddrank::trace
