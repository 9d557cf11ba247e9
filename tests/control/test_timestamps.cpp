// Marks and timestamps on the shared page: a reader always sees a consistent pair.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "control/page.hpp"
#include "os/error.hpp"

namespace oddrank::control {
namespace {

Progress mark(std::uint64_t progress, bool waiting, std::uint32_t stage = 1) {
  Progress made;
  made.progress = progress;
  made.stage_number = stage;
  made.waiting = waiting ? 1 : 0;
  return made;
}

void is(const Page& page, std::uint64_t progress, int waiting) {
  EXPECT_EQ(page.read().progress, progress);
  EXPECT_EQ(page.read().waiting, waiting);
}

TEST(Timestamps, a_collective_is_two_marks_and_what_does_not_fit_is_counted_and_still_shows) {
  Page page;
  page.begin_stage(mark(100, false));
  Timestamps timestamps(page, 3);
  is(page, 100, 0);
  for (std::uint64_t i = 0; i < 5; ++i) {
    timestamps.enter();
    is(page, 101 + 2 * i, 1);  // it waits for others
    timestamps.leave();
    is(page, 102 + 2 * i, 0);
  }
  EXPECT_EQ(timestamps.count(), 3U);
  EXPECT_EQ(timestamps.dropped(), 2U);
  for (const int room : {0, -1, static_cast<int>(Timestamps::kMost + 1)}) {
    EXPECT_THROW(Timestamps(page, room), Error) << room;
  }
}

TEST(Timestamps, the_last_word_of_steps_and_timestamps_says_whether_it_waits) {
  Page page;
  page.begin_stage(mark(100, false));
  page.write(mark(101, true));
  Timestamps timestamps(page, 10);
  timestamps.enter();
  is(page, 102, 1);
  timestamps.leave();
  is(page, 103, 0);  // though the last step waited
  page.write(mark(102, true));
  is(page, 104, 1);  // two marks of the collective, two of the steps
  timestamps.enter();
  page.write(mark(103, false));
  is(page, 106, 0);
  page.begin_stage(mark(1ULL << 32, false, 2));  // without the timestamps of the last one
  is(page, 1ULL << 32, 0);
  timestamps.leave();
  EXPECT_EQ(page.read().progress, (1ULL << 32) + 1);
}

TEST(Timestamps, a_leave_without_an_enter_is_nothing_and_a_second_enter_begins_anew) {
  Page page;
  Timestamps timestamps(page, 4);
  timestamps.leave();
  EXPECT_EQ(timestamps.count(), 0U);
  is(page, 0, 0);
  timestamps.enter();
  timestamps.enter();
  const std::int64_t before = monotonic_ns();
  timestamps.leave();
  timestamps.leave();
  EXPECT_EQ(timestamps.count(), 1U);
  EXPECT_LE(timestamps.starts()[0], before);
  EXPECT_GE(timestamps.starts()[0] + timestamps.durations()[0], before);
}

// Writes stages, steps and timestamps as fast as possible: every state that is read has existed.
TEST(Timestamps, a_reader_never_sees_progress_go_back) {
  Page page;
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    Timestamps timestamps(page, 1);
    for (std::uint32_t stage = 1; !stop.load(); ++stage) {
      Progress now = mark(std::uint64_t{stage} << 32, false, stage);
      page.begin_stage(now);
      for (int i = 0; i < 8; ++i) {
        ++now.progress;
        page.write(now);
        timestamps.enter();
        timestamps.leave();
      }
    }
  });
  Progress last, now;
  // If both share a core, few states are seen.
  const Deadline end = Deadline::after_ms(3'000);
  for (int seen = 0; seen < 50'000 && !end.passed();) {
    now = page.read();
    if (now.torn != 0 || now.progress == last.progress) continue;  // torn: it was preempted
    ++seen;
    // Marks 1, 4, 7 ... of a stage are steps, the others timestamps.
    const bool waits = now.progress % (1ULL << 32) % 3 == 2;
    if (now.progress < last.progress || now.progress >> 32 != now.stage_number ||
        now.waiting != waits) {
      ADD_FAILURE() << now.progress << " after " << last.progress;
      break;
    }
    last = now;
  }
  stop = true;
  worker.join();
}

}  // namespace
}  // namespace oddrank::control
