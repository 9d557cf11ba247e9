// When a stage ends, and why: pure bookkeeping on a simulated clock.
#include <gtest/gtest.h>

#include "control/ranks.hpp"

namespace oddrank::control::ranks_test {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kStart = 1'000 * kSecond;
constexpr std::int64_t kDeadline = kStart + 30 * kSecond;

// Four joined ranks; stage 1 began at kStart.
class Stage : public ::testing::Test {
 protected:
  Stage() : ranks(4, 2 * kSecond) {
    for (int rank = 0; rank < 4; ++rank) ranks.joined(rank, Hello{}, kStart - kSecond);
    ranks.begin(1, kDeadline, kStart);
  }
  static State life(Liveness life, bool waiting = false) {
    State state;
    state.life = life;
    state.waiting = waiting;
    return state;
  }
  Reason after(double seconds) const {
    return ranks.decide(kStart + static_cast<std::int64_t>(seconds * 1e9), 0);
  }
  void results_of(std::initializer_list<int> who) {
    for (const int rank : who) ranks.set_result(rank, 1, "r");
  }

  Ranks ranks;
};

TEST_F(Stage, is_complete_with_the_last_result) {
  results_of({0, 1, 2});
  EXPECT_EQ(after(1), Reason::kOpen);
  results_of({3});
  EXPECT_EQ(after(1), Reason::kComplete);
}

TEST_F(Stage, ends_at_its_deadline_when_nobody_shows_a_fault) {
  results_of({0, 1, 2});
  EXPECT_EQ(after(29.9), Reason::kOpen);
  EXPECT_EQ(after(30), Reason::kDeadline);
}

TEST_F(Stage, ends_soon_after_a_death) {
  ranks.set_state(2, life(Liveness::kDead), kStart + kSecond);
  EXPECT_EQ(after(1.4), Reason::kOpen);
  EXPECT_EQ(after(1.5), Reason::kFault);
}

TEST_F(Stage, ends_at_once_when_everybody_is_accounted_for) {
  results_of({0, 1});
  ranks.set_state(2, life(Liveness::kDead), kStart + kSecond);
  EXPECT_EQ(after(1.1), Reason::kOpen);
  ranks.set_failure(3, 1, "RuntimeError: connection closed by peer", kStart + kSecond);
  EXPECT_EQ(after(1.1), Reason::kFault);
}

TEST_F(Stage, goes_on_when_a_stopped_rank_goes_on) {
  ranks.set_state(1, life(Liveness::kStopped), kStart + kSecond);
  EXPECT_EQ(after(2.9), Reason::kOpen);
  EXPECT_EQ(after(3.0), Reason::kFault);
  ranks.set_state(1, life(Liveness::kRunning), kStart + 2 * kSecond);
  EXPECT_EQ(after(9), Reason::kOpen);
  EXPECT_EQ(ranks.record(1).fault_ns, 0);
}

TEST_F(Stage, gives_a_victim_more_time_for_the_culprit_to_show) {
  ranks.set_state(0, life(Liveness::kRunning, true), kStart + kSecond);
  ranks.set_failure(0, 1, "RuntimeError: timed out", kStart + kSecond);
  EXPECT_EQ(after(3.4), Reason::kOpen);  // 2 s until a guard counts as silent, and 0.5 s more
  EXPECT_EQ(after(3.5), Reason::kFault);
  ranks.set_state(3, life(Liveness::kDead), kStart + kSecond);
  EXPECT_EQ(after(1.5), Reason::kFault);
}

TEST_F(Stage, waits_for_a_process_in_disk_sleep_until_the_deadline) {
  ranks.set_state(1, life(Liveness::kUninterruptible), kStart + kSecond);
  EXPECT_EQ(after(29), Reason::kOpen);
  EXPECT_EQ(after(30), Reason::kDeadline);
}

TEST_F(Stage, is_terminated_when_only_launchers_signals_explain_it) {
  State state;
  state.terminated = 15;
  ranks.set_state(1, state, kStart + kSecond);
  EXPECT_EQ(after(2.9), Reason::kOpen);
  EXPECT_EQ(after(3.0), Reason::kTerminated);
  ranks.set_state(2, life(Liveness::kDead), kStart + 2 * kSecond);
  EXPECT_EQ(after(3.0), Reason::kFault);
}

TEST_F(Stage, keeps_the_time_of_a_fault_as_its_guard_saw_it) {
  State state = life(Liveness::kDead);
  state.fault_age_ns = kSecond / 10;
  ranks.set_state(2, state, kStart + kSecond);
  EXPECT_EQ(ranks.record(2).fault_ns, kStart + kSecond - kSecond / 10);
  ranks.set_contact(2, Contact::kClosed, kStart + 2 * kSecond);
  EXPECT_EQ(ranks.record(2).fault_ns, kStart + kSecond - kSecond / 10) << "the first one counts";
}

TEST_F(Stage, forgets_results_but_not_deaths_when_the_next_begins) {
  results_of({0, 1, 2, 3});
  ranks.set_state(2, life(Liveness::kDead), kStart + kSecond);
  ranks.begin(2, kDeadline, kStart + 2 * kSecond);
  EXPECT_EQ(ranks.results(), 0);
  EXPECT_EQ(after(2.4), Reason::kOpen);
  EXPECT_EQ(after(2.5), Reason::kFault);
}

TEST(Join, has_the_ranks_that_came_as_its_results) {
  Ranks ranks(3, 2 * kSecond);
  ranks.begin(0, kDeadline, kStart);
  ranks.joined(0, Hello{}, kStart);
  ranks.joined(2, Hello{}, kStart);
  EXPECT_EQ(ranks.decide(kStart + kSecond, 0), Reason::kOpen);
  EXPECT_EQ(ranks.decide(kStart + kSecond, kStart), Reason::kFault) << "nobody else can come";
  ranks.joined(1, Hello{}, kStart);
  EXPECT_EQ(ranks.decide(kStart + kSecond, 0), Reason::kComplete);
}

TEST(Join, sees_a_rank_that_never_came_as_a_fault_of_every_later_stage) {
  Ranks ranks(2, 2 * kSecond);
  ranks.begin(0, kDeadline, kStart);
  ranks.joined(0, Hello{}, kStart);
  ranks.begin(1, kDeadline, kStart);
  ranks.set_result(0, 1, "");
  EXPECT_EQ(ranks.decide(kStart + kSecond, 0), Reason::kFault);
}

}  // namespace
}  // namespace oddrank::control::ranks_test
