// Stacks and rings of writers that are dead, stopped or faster than the reader.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "../patience.hpp"
#include "record_builder.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {
namespace {

constexpr auto kLine = static_cast<std::uint8_t>(Kind::kLine);

TEST(ReadThreads, shows_each_thread_with_its_stack_outermost_first) {
  RecordBuilder record;
  fill_record(record);
  const Threads threads = read_threads(record.open());
  EXPECT_EQ(threads.broken, 0U);
  ASSERT_EQ(threads.list.size(), 2U);
  const Thread& main = threads.list[0];
  EXPECT_EQ(main.slot, 0U);
  EXPECT_EQ(main.state, ThreadState::kLive);
  EXPECT_EQ(main.generation, 1U);
  EXPECT_EQ(main.tid, 100U);
  EXPECT_EQ(main.python_id, 0x7000U);
  EXPECT_EQ(main.name, "MainThread");
  EXPECT_EQ(main.depth, 2U);
  ASSERT_EQ(main.stack.size(), 2U);
  EXPECT_EQ(main.stack[0].code(), 1U);
  EXPECT_EQ(main.stack[0].position(), 12U);
  EXPECT_EQ(main.stack[1].code(), 2U);
  EXPECT_EQ(main.stack[1].kind(), Kind::kLine);
  EXPECT_FALSE(main.torn);
  EXPECT_FALSE(main.cut);
  EXPECT_EQ(main.events, 40U);
  EXPECT_EQ(main.capacity, 16U);
  EXPECT_EQ(threads.list[1].slot, 2U);
  EXPECT_EQ(threads.list[1].name, "pin_memory");
}

TEST(ReadThreads, the_last_frame_of_a_stack_without_room_is_the_innermost) {
  RecordBuilder record;
  std::vector<Place> stack;
  for (std::uint32_t i = 1; i <= 11; ++i) stack.push_back(Place::of(i, i, kLine));
  record.thread(1, "deep", stack);
  const Threads threads = read_threads(record.open());
  ASSERT_EQ(threads.list.size(), 1U);
  const Thread& deep = threads.list[0];
  EXPECT_EQ(deep.depth, 11U);
  EXPECT_TRUE(deep.cut);
  ASSERT_EQ(deep.stack.size(), 8U);
  EXPECT_EQ(deep.stack[6].code(), 7U);
  EXPECT_EQ(deep.stack[7].code(), 11U);
}

TEST(ReadThreads, a_slot_that_no_writer_leaves_so_is_counted_and_not_believed) {
  const auto broken_after = [](auto change) {
    RecordBuilder record;
    fill_record(record);
    change(record.slot(0));
    const Threads threads = read_threads(record.open());
    EXPECT_EQ(threads.broken, 1U);
    for (const Thread& thread : threads.list) {
      EXPECT_LE(thread.stack.size(), 8U);
      if (thread.slot != 0) continue;
      EXPECT_EQ(thread.capacity, 0U);
    }
    EXPECT_TRUE(read_events(record.open(), 0, 100).list.empty());
    return threads.list.size();
  };
  EXPECT_EQ(broken_after([](ThreadSlot& s) { s.state = 3; }), 1U);
  EXPECT_EQ(broken_after([](ThreadSlot& s) { s.state = ~std::uint64_t{0}; }), 1U);
  EXPECT_EQ(broken_after([](ThreadSlot& s) { s.ring_events = 15; }), 2U);
  EXPECT_EQ(broken_after([](ThreadSlot& s) { s.ring_events = 1U << 31; }), 2U);
  EXPECT_EQ(broken_after([](ThreadSlot& s) { s.ring_events = 128; }), 2U);
  EXPECT_EQ(broken_after([](ThreadSlot& s) { s.ring_offset = 0; }), 2U);
  EXPECT_EQ(broken_after([](ThreadSlot& s) { ++s.ring_offset; }), 2U);
  EXPECT_EQ(broken_after([](ThreadSlot& s) { s.ring_offset = ~std::uint64_t{15}; }), 2U);
  EXPECT_EQ(broken_after([](ThreadSlot& s) { s.ring_offset += 3 * 256 + 16; }), 2U);
}

TEST(ReadThreads, a_stack_without_sensible_room_is_not_read) {
  for (const std::uint32_t room : {0U, 9U, ~0U}) {
    RecordBuilder record;
    fill_record(record);
    record.slot(0).stack_room = room;
    record.slot(0).depth = ~std::uint64_t{0};
    const Threads threads = read_threads(record.open());
    EXPECT_EQ(threads.broken, 1U);
    EXPECT_EQ(threads.list.size(), 1U);
  }
}

TEST(ReadThreads, a_thread_without_a_ring_has_only_its_stack) {
  RecordBuilder record;
  fill_record(record);
  record.slot(0).ring_events = 0;
  const Threads threads = read_threads(record.open());
  EXPECT_EQ(threads.broken, 0U);
  EXPECT_EQ(threads.list[0].stack.size(), 2U);
  EXPECT_EQ(threads.list[0].capacity, 0U);
  EXPECT_TRUE(read_events(record.open(), 0, 5).list.empty());
}

// A stack whose frames name their callers: code is the frame's number, position its caller's.
class BusyStack {
 public:
  explicit BusyStack(ThreadSlot& slot) : slot_(slot) {}
  // Writes in the recorder's order: the place, the count of changes, the depth.
  void enter() {
    const std::uint32_t caller = depth_ == 0 ? 0 : numbers_[depth_ - 1];
    numbers_[depth_] = ++last_ & 0xFFFF;
    slot_.stack()[depth_].store(Place::of(numbers_[depth_], caller, kLine).bits);
    ++depth_;
    publish();
  }
  void leave() {
    --depth_;
    publish();
  }
  std::size_t depth() const { return depth_; }

 private:
  void publish() {
    slot_.changes.store(++changes_);
    slot_.depth.store(depth_);
  }
  ThreadSlot& slot_;
  std::uint32_t numbers_[8] = {};
  std::uint32_t last_ = 0;
  std::uint64_t changes_ = 0;
  std::size_t depth_ = 0;
};

TEST(ReadThreads, a_stack_that_changes_meanwhile_is_of_one_moment_or_flagged) {
  RecordBuilder record;
  record.thread(0, "busy", {});
  std::jthread writer([&](const std::stop_token& stop) {
    BusyStack stack(record.slot(0));
    std::minstd_rand random(7);
    for (std::uint64_t turn = 0; !stop.stop_requested(); ++turn) {
      const bool deeper = stack.depth() == 0 || (stack.depth() < 8 && random() % 2 == 0);
      deeper ? stack.enter() : stack.leave();
      // Writes in bursts: sometimes the reader is faster, sometimes slower.
      if (turn % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  const RecordFile file = record.open();
  int whole = 0;
  for (int i = 0; i < 5000; ++i) {
    const Threads threads = read_threads(file, 2);
    ASSERT_EQ(threads.list.size(), 1U);
    const Thread& thread = threads.list[0];
    if (thread.torn) continue;
    ++whole;
    EXPECT_EQ(thread.stack.size(), thread.depth);
    std::uint32_t caller = 0;
    for (const Place place : thread.stack) {
      EXPECT_EQ(place.position(), caller);
      caller = place.code();
    }
  }
  EXPECT_GT(whole, 0);
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

TEST(ReadEvents, gives_the_last_ones_oldest_first) {
  RecordBuilder record;
  record.thread(1, "t", {});
  for (std::uint64_t i = 0; i < 10; ++i) {
    record.event(1, 100 + i, Place::of(static_cast<std::uint32_t>(i), 5, kLine));
  }
  const RecordFile file = record.open();
  Events events = read_events(file, 1, 4);
  ASSERT_EQ(events.list.size(), 4U);
  EXPECT_EQ(events.first, 6U);
  EXPECT_EQ(events.generation, 1U);
  EXPECT_EQ(events.list[0].tsc, 106U);
  EXPECT_EQ(events.list[3].place.code(), 9U);
  EXPECT_EQ(read_events(file, 1, ~std::uint64_t{0}).list.size(), 10U);
  EXPECT_TRUE(read_events(file, 1, 0).list.empty());
  EXPECT_TRUE(read_events(file, 0, 5).list.empty()) << "a free slot";
  EXPECT_TRUE(read_events(file, 4, 5).list.empty()) << "no such slot";
  EXPECT_TRUE(read_events(file, ~0U, 5).list.empty());
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

TEST(ReadEvents, the_oldest_place_of_a_full_ring_is_left_out) {
  RecordBuilder record;
  record.thread(1, "t", {});
  for (std::uint64_t laps = 16; laps < 70; ++laps) {
    while (record.slot(1).head < laps) record.event(1, record.slot(1).head, Place{});
    const Events events = read_events(record.open(), 1, 100);
    ASSERT_EQ(events.list.size(), 15U);
    EXPECT_EQ(events.first, laps - 15);
    for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(events.list[i].tsc, events.first + i);
  }
  record.slot(1).head = ~std::uint64_t{0};
  EXPECT_EQ(read_events(record.open(), 1, 100).list.size(), 15U);
}

TEST(ReadEvents, the_one_that_the_writer_is_at_work_on_is_not_believed) {
  EXPECT_EQ(overwritten(0, 16, 15), 0U);
  EXPECT_EQ(overwritten(0, 16, 16), 1U) << "event 16 goes where event 0 is";
  EXPECT_EQ(overwritten(0, 16, 17), 2U);
  EXPECT_EQ(overwritten(5, 16, 20), 0U);
  EXPECT_EQ(overwritten(5, 16, 21), 1U);
}

// The writers number their events, and write thrice the number as the place.
void expect_whole(const Events& events) {
  for (std::size_t i = 0; i < events.list.size(); ++i) {
    EXPECT_EQ(events.list[i].tsc, events.first + i);
    EXPECT_EQ(events.list[i].place.bits, (events.first + i) * 3);
  }
}

TEST(ReadEvents, events_overwritten_during_the_copy_are_discarded) {
  RecordSizes sizes;
  sizes.ring_events = 1024;
  RecordBuilder record(sizes);
  record.thread(0, "busy", {});
  std::jthread writer([&](const std::stop_token& stop) {
    for (std::uint64_t i = 0; !stop.stop_requested(); ++i) {
      record.event(0, i, Place{i * 3});
      if (i % 5000 == 0) std::this_thread::yield();
    }
  });
  const RecordFile file = record.open();
  while (record.slot(0).head < 5000) std::this_thread::yield();
  std::uint64_t overwritten = 0;
  EXPECT_TRUE(patience::until([&, reads = 0]() mutable {
    const Events events = read_events(file, 0, 1024);
    overwritten += events.overwritten;
    expect_whole(events);
    return HasFailure() || (++reads >= 3000 && overwritten > 0);
  }));
}

TEST(ReadEvents, no_event_of_a_slow_writer_is_seen_half_written) {
  RecordBuilder record;
  record.thread(0, "slow", {});
  std::jthread writer([&](const std::stop_token& stop) {
    const auto wait = [] {
      for (int i = 0; i < 1500; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    };
    ThreadSlot& slot = record.slot(0);
    auto* ring = record.at<Event>(slot.ring_offset);
    for (std::uint64_t i = 0; !stop.stop_requested(); ++i) {
      ring[i % 16].tsc = i;
      wait();
      ring[i % 16].place = i * 3;
      wait();
      slot.head = i + 1;
    }
  });
  const RecordFile file = record.open();
  std::uint64_t seen = 0;
  EXPECT_TRUE(patience::until([&, reads = 0]() mutable {
    const Events events = read_events(file, 0, 16);
    seen += events.list.size();
    expect_whole(events);
    return HasFailure() || (++reads >= 20'000 && seen > 0);
  }));
}

// Returns the CPU time of this thread, the only reader, without waiting for a core.
double cpu_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// A file like a rank's: 4 MiB, 64 slots, 400 code objects; three threads with 20 frames each.
TEST(ReadSpeed, many_files_are_read_for_their_stacks_at_once) {
  std::string root = "/dev/shm/oddrank-test-XXXXXX";
  if (::mkdtemp(root.data()) == nullptr) {
    root = testing::TempDir() + "oddrank-test-XXXXXX";
    ASSERT_NE(::mkdtemp(root.data()), nullptr);
  }
  RecordSizes sizes;
  sizes.dictionary = 1 << 20;
  sizes.threads = 64;
  sizes.stack_room = 256;
  sizes.ring_events = 2048;
  sizes.marks = 4096;
  RecordBuilder record(sizes);
  for (std::uint32_t id = 1; id <= 40; ++id) {
    record.entry(EntryKind::kText, id, "/usr/lib/python3.12/site-packages/file_of_code.py");
  }
  for (std::uint32_t id = 1; id <= 400; ++id) {
    record.code(id, "Module.some_function", id % 40 + 1, id, std::string(150, 'l'));
  }
  std::vector<Place> stack;
  for (std::uint32_t i = 0; i < 20; ++i) stack.push_back(Place::of(i * 7 + 1, i, kLine));
  for (std::uint32_t i = 0; i < 3; ++i) record.thread(i, "thread", stack);
  constexpr int kFiles = 256;
  for (int i = 0; i < kFiles; ++i) record.save(root + "/" + std::to_string(i));

  const double begin = cpu_ms();
  std::size_t frames = 0;
  for (int i = 0; i < kFiles; ++i) {
    const RecordFile file(root + "/" + std::to_string(i));
    const Dictionary dictionary(file);
    for (const Thread& thread : read_threads(file).list) {
      for (const Place place : thread.stack) frames += dictionary.code(place.code()) != nullptr;
    }
  }
  const double took = cpu_ms() - begin;
  std::filesystem::remove_all(root);
  EXPECT_EQ(frames, kFiles * 60U);
  RecordProperty("milliseconds", static_cast<int>(took));
  std::printf("%d files of %.1f MiB in %.1f ms\n", kFiles,
              static_cast<double>(record.size()) / (1 << 20), took);
  // 1,024 files in 2 s on an idle machine; sanitizers and slow ones are given ten times as long.
  EXPECT_LT(took, 5'000);
}

}  // namespace
}  // namespace oddrank::trace
