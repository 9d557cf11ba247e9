// Marks and laps on the shared page: a reader sees them together as if they were one.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "control/laps.hpp"
#include "control/page.hpp"

namespace oddrank::control {
namespace {

Mark mark(std::uint64_t progress, bool waiting, std::uint32_t stage = 1) {
  Mark made;
  made.progress = progress;
  made.stage_number = stage;
  made.waiting = waiting ? 1 : 0;
  return made;
}

TEST(Laps, a_lap_is_two_marks_and_waits_for_others_in_between) {
  Page page;
  page.begin_stage(mark(100, false));
  Laps laps(page, 3);
  EXPECT_EQ(page.read().progress, 100U);
  for (std::uint64_t i = 0; i < 5; ++i) {
    laps.enter();
    EXPECT_EQ(page.read().progress, 101U + 2 * i);
    EXPECT_EQ(page.read().waiting, 1);
    laps.leave();
    EXPECT_EQ(page.read().progress, 102U + 2 * i);
    EXPECT_EQ(page.read().waiting, 0);
  }
}

TEST(Laps, the_last_word_of_steps_and_laps_says_whether_it_waits) {
  Page page;
  page.begin_stage(mark(100, false));
  page.write(mark(101, true));
  Laps laps(page, 1);
  laps.enter();
  EXPECT_EQ(page.read().waiting, 1);
  laps.leave();
  EXPECT_EQ(page.read().waiting, 0) << "though the last step waited";
  page.write(mark(102, true));
  EXPECT_EQ(page.read().waiting, 1);
  EXPECT_EQ(page.read().progress, 104U) << "two marks of the lap, two of the steps";
  laps.enter();
  page.write(mark(103, false));
  EXPECT_EQ(page.read().waiting, 0);
}

TEST(Laps, a_stage_begins_without_the_laps_of_the_last_one) {
  Page page;
  page.begin_stage(mark(1ULL << 32, false, 1));
  Laps laps(page, 10);
  laps.enter();
  laps.leave();
  laps.enter();
  page.begin_stage(mark(2ULL << 32, false, 2));
  EXPECT_EQ(page.read().progress, 2ULL << 32);
  EXPECT_EQ(page.read().waiting, 0);
  laps.leave();
  EXPECT_EQ(page.read().progress, (2ULL << 32) + 1);
}

TEST(Laps, what_does_not_fit_is_counted_and_still_shows) {
  Page page;
  Laps laps(page, 2);
  for (int i = 0; i < 5; ++i) {
    laps.enter();
    laps.leave();
  }
  EXPECT_EQ(laps.count(), 2U);
  EXPECT_EQ(laps.dropped(), 3U);
  EXPECT_EQ(page.read().progress, 10U);
}

TEST(Laps, a_leave_without_an_enter_is_nothing_and_a_second_enter_begins_anew) {
  Page page;
  Laps laps(page, 4);
  laps.leave();
  EXPECT_EQ(laps.count(), 0U);
  EXPECT_EQ(page.read().progress, 0U);
  laps.enter();
  laps.enter();
  const std::int64_t before = monotonic_ns();
  laps.leave();
  laps.leave();
  EXPECT_EQ(laps.count(), 1U);
  EXPECT_LE(laps.starts()[0], before);
  EXPECT_GE(laps.starts()[0] + laps.durations()[0], before);
}

TEST(Laps, a_capacity_that_makes_no_sense_is_refused) {
  Page page;
  EXPECT_THROW(Laps(page, 0), Error);
  EXPECT_THROW(Laps(page, -1), Error);
  EXPECT_THROW(Laps(page, Laps::kMost + 1), Error);
}

// Stages, steps and laps follow each other as fast as they can: what is read has always existed.
TEST(Laps, a_reader_never_sees_progress_go_back) {
  Page page;
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    Laps laps(page, 1);
    for (std::uint32_t stage = 1; !stop.load(); ++stage) {
      Mark now = mark(std::uint64_t{stage} << 32, false, stage);
      page.begin_stage(now);
      for (int i = 0; i < 8; ++i) {
        ++now.progress;
        page.write(now);
        laps.enter();
        laps.leave();
      }
    }
  });
  std::uint64_t last = 0;
  std::string wrong;
  // Where both share a core, little is seen.
  const Deadline end = Deadline::after_ms(3'000);
  for (int seen = 0; seen < 50'000 && wrong.empty() && !end.passed();) {
    const Mark now = page.read();
    if (now.torn != 0 || now.progress == last) continue;  // torn: its core was taken away just then
    ++seen;
    // Steps are marks 1, 4, 7 ... of a stage, and laps those after them.
    const bool waits = now.progress % (1ULL << 32) % 3 == 2;
    if (now.progress < last || now.progress >> 32 != now.stage_number || now.waiting != waits) {
      wrong = std::to_string(now.progress) + " after " + std::to_string(last);
    }
    last = now.progress;
  }
  stop = true;
  worker.join();
  EXPECT_EQ(wrong, "");
}

}  // namespace
}  // namespace oddrank::control
