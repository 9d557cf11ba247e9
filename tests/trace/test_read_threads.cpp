// Stacks and rings of writers that are dead, stopped or faster than the reader.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "../patience.hpp"
#include "../words.hpp"
#include "record_builder.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {
namespace {

constexpr auto kLine = static_cast<std::uint8_t>(Kind::kLine);

TEST(ReadThreads, the_last_frame_of_a_stack_without_room_is_the_innermost) {
  RecordBuilder record;
  std::vector<Place> stack;
  for (std::uint32_t i = 1; i <= 11; ++i) stack.push_back(Place::of(i, i, kLine));
  record.thread(1, "deep", stack);
  const Threads threads = read_threads(record.open());
  EXPECT_EQ(each(threads.list, &Thread::depth, &Thread::cut), "11 1");
  EXPECT_EQ(each(threads.list.at(0).stack, &Place::code), "1, 2, 3, 4, 5, 6, 7, 11");
}

TEST(ReadThreads, a_slot_that_no_writer_leaves_so_is_counted_and_not_believed) {
  const struct {
    const char* what;
    void (*change)(ThreadSlot&);
    std::uint32_t broken;
    std::size_t threads;  // that are shown, with a stack at least
  } rows[] = {
      {"a state", [](ThreadSlot& s) { s.state = 3; }, 1, 1},
      {"all bits", [](ThreadSlot& s) { s.state = ~std::uint64_t{0}; }, 1, 1},
      {"no power of two", [](ThreadSlot& s) { s.ring_events = 15; }, 1, 2},
      {"a ring above all", [](ThreadSlot& s) { s.ring_events = 1U << 31; }, 1, 2},
      {"a large ring", [](ThreadSlot& s) { s.ring_events = 128; }, 1, 2},
      {"a ring in the header", [](ThreadSlot& s) { s.ring_offset = 0; }, 1, 2},
      {"a ring not aligned", [](ThreadSlot& s) { ++s.ring_offset; }, 1, 2},
      {"a ring far away", [](ThreadSlot& s) { s.ring_offset = ~std::uint64_t{15}; }, 1, 2},
      {"a ring at the end", [](ThreadSlot& s) { s.ring_offset += 3 * 256 + 16; }, 1, 2},
      {"no room", [](ThreadSlot& s) { s.stack_room = 0; }, 1, 1},
      {"room of the next slot", [](ThreadSlot& s) { s.stack_room = 9; }, 1, 1},
      {"room of all", [](ThreadSlot& s) { s.stack_room = ~0U; }, 1, 1},
      {"no ring, which is right", [](ThreadSlot& s) { s.ring_events = 0; }, 0, 2},
  };
  for (const auto& row : rows) {
    FullRecord record;
    if (row.threads == 1) record.slot(0).depth = ~std::uint64_t{0};
    row.change(record.slot(0));
    const Threads threads = read_threads(record.open());
    EXPECT_EQ(words(threads.broken, threads.list.size()), words(row.broken, row.threads))
        << row.what;
    if (row.threads == 2) {
      EXPECT_EQ(words(threads.list[0].stack.size(), threads.list[0].capacity), "2 0") << row.what;
    }
    if (std::string_view(row.what).find("room") == std::string_view::npos) {
      EXPECT_TRUE(read_events(record.open(), 0, 100).list.empty()) << row.what;
    }
  }
}

TEST(ReadThreads, a_stack_that_never_rests_is_shown_as_it_stands_and_flagged) {
  RecordBuilder record;
  const Place stack[] = {Place::of(1, 1, kLine), Place::of(2, 2, kLine)};
  record.thread(0, "restless", stack);
  std::jthread writer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) record.slot(0).changes.fetch_add(1, std::memory_order_relaxed);
  });
  const RecordFile file = record.open();
  // On one core, it is torn only if the reader is interrupted between two reads.
  EXPECT_TRUE(patience::until([&] {
    const Threads threads = read_threads(file, 1);
    EXPECT_EQ(threads.list.size(), 1U);
    EXPECT_EQ(threads.list.at(0).stack.size(), 2U);
    return threads.list[0].torn;
  }));
}

TEST(ReadEvents, a_thread_that_has_filled_its_ring_since_is_read_again) {
  RecordBuilder record;
  record.thread(1, "t", {});
  for (std::uint64_t i = 0; i < 10; ++i) record.event(1, i, Place{});
  Thread thread = read_threads(record.open()).list.at(0);
  for (std::uint64_t i = 10; i < 100; ++i) record.event(1, i, Place{});
  const Events events = read_events(record.open(), thread);
  ASSERT_EQ(events.list.size(), 15U);
  EXPECT_EQ(events.list.back().tsc, 99U);
  EXPECT_EQ(thread.events, 100U) << "its stack is of then, too";
}

// The writer may be at work on it: event 16 goes where event 0 is.
TEST(ReadEvents, the_oldest_place_of_a_full_ring_is_left_out) {
  RecordBuilder record;
  record.thread(1, "t", {});
  for (std::uint64_t laps = 16; laps < 70; ++laps) {
    while (record.slot(1).head < laps) record.event(1, record.slot(1).head, Place{});
    const Events events = read_events(record.open(), 1, 100);
    ASSERT_EQ(words(events.list.size(), events.first), words(15, laps - 15));
    for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(events.list[i].tsc, events.first + i);
  }
  EXPECT_EQ(read_events(record.open(), 1, 4).first, 65U);
  for (const std::uint32_t no : {0U, 4U, ~0U}) {  // a free slot, and none
    EXPECT_TRUE(read_events(record.open(), no, 5).list.empty()) << no;
  }
  record.slot(1).head = ~std::uint64_t{0};
  EXPECT_EQ(read_events(record.open(), 1, 100).list.size(), 15U);
  const std::uint64_t cases[][3] = {{0, 15, 0}, {0, 16, 1}, {0, 17, 2}, {5, 20, 0}, {5, 21, 1}};
  for (const auto& [first, now, lost] : cases) EXPECT_EQ(overwritten(first, 16, now), lost) << now;
}

// The writer numbers its events, and writes thrice the number as the place.
TEST(ReadEvents, none_is_seen_half_written_or_overwritten_during_the_copy) {
  for (const bool slow : {false, true}) {
    RecordBuilder record({.ring_events = slow ? 16U : 1024U});
    record.thread(0, "busy", {});
    std::jthread writer([&](const std::stop_token& stop) {
      const auto rest = [slow] {
        for (int i = 0; slow && i < 1500; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      };
      ThreadSlot& slot = record.slot(0);
      auto* ring = record.at<Event>(slot.ring_offset);
      for (std::uint64_t i = 0; !stop.stop_requested(); ++i) {
        Event& event = ring[i % slot.ring_events];
        event.tsc.store(i, std::memory_order_relaxed);
        rest();
        event.place.store(i * 3, std::memory_order_relaxed);
        rest();
        slot.head.store(i + 1, std::memory_order_release);
        if (!slow && i % 5000 == 0) std::this_thread::yield();
      }
    });
    const RecordFile file = record.open();
    std::uint64_t seen = 0, lost = 0;
    EXPECT_TRUE(patience::until([&, reads = 0]() mutable {
      const Events events = read_events(file, 0, 1024);
      lost += events.overwritten;
      seen += events.list.size();
      for (std::size_t i = 0; i < events.list.size(); ++i) {
        EXPECT_EQ(events.list[i].tsc, events.first + i);
        EXPECT_EQ(events.list[i].place.bits, (events.first + i) * 3);
      }
      return HasFailure() || (++reads >= (slow ? 20'000 : 3000) && seen > 0 && (slow || lost > 0));
    }));
  }
}

std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::uint64_t count = 0;
  io >> name >> count;
  return count;
}

// `oddrank trace` reads the records of a thousand ranks at once.
TEST(ReadThreads, of_a_file_like_a_ranks_little_more_than_names_and_stacks_are_read) {
  RecordBuilder record(
      {.dictionary = 1 << 20, .threads = 64, .stack_room = 256, .ring_events = 2048});
  for (std::uint32_t id = 1; id <= 400; ++id) {
    record.code(id, "Module.some_function", 1, id, std::string(150, 'l'));
  }
  std::vector<Place> stack;
  for (std::uint32_t i = 0; i < 20; ++i) stack.push_back(Place::of(i * 7 + 1, i, kLine));
  for (std::uint32_t i = 0; i < 3; ++i) record.thread(i, "thread", stack);
  const std::uint64_t before = bytes_read();
  const RecordFile file = record.open();
  const Dictionary dictionary(file);
  std::size_t frames = 0;
  for (const Thread& thread : read_threads(file).list) {
    for (const Place place : thread.stack) frames += dictionary.code(place.code()) != nullptr;
  }
  EXPECT_EQ(frames, 60U);
  EXPECT_LT(bytes_read() - before, record.size() / 4) << "of a file of " << record.size();
}

}  // namespace
}  // namespace oddrank::trace
