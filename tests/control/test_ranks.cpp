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
  void shows(int rank, Liveness life, double seconds = 1, bool waiting = false,
             int terminated = 0) {
    State state;
    state.life = life;
    state.waiting = waiting;
    state.terminated = terminated;
    ranks.set_state(rank, state, at(seconds));
  }
  void fails(int rank) { ranks.set_failure(rank, 1, "RuntimeError: timed out", at(1)); }
  void results_of(std::initializer_list<int> who) {
    for (const int rank : who) ranks.set_result(rank, 1, "r");
  }
  static std::int64_t at(double seconds) {
    return kStart + static_cast<std::int64_t>(seconds * 1e9);
  }
  // The stage is open just before these seconds, and ends then.
  void ends(double seconds, Reason why, double before = 0.1) const {
    EXPECT_EQ(ranks.decide(at(seconds - before), 0), Reason::kOpen);
    EXPECT_EQ(ranks.decide(at(seconds), 0), why);
  }

  Ranks ranks;
};

TEST_F(Stage, is_complete_with_the_last_result_and_ends_at_its_deadline_without_it) {
  results_of({0, 1, 2});
  ends(30, Reason::kDeadline);
  results_of({3});
  EXPECT_EQ(ranks.decide(at(1), 0), Reason::kComplete);
}

TEST_F(Stage, ends_soon_after_a_death_and_at_once_when_everybody_is_accounted_for) {
  shows(2, Liveness::kDead);
  ends(1.5, Reason::kFault);
  results_of({0, 1});
  ends(1.5, Reason::kFault);
  fails(3);
  EXPECT_EQ(ranks.decide(at(1.1), 0), Reason::kFault);
}

TEST_F(Stage, goes_on_when_a_stopped_rank_goes_on) {
  shows(1, Liveness::kStopped);
  ends(3.0, Reason::kFault);
  shows(1, Liveness::kRunning, 2);
  EXPECT_EQ(ranks.decide(at(9), 0), Reason::kOpen);
  EXPECT_EQ(ranks.record(1).fault_ns, 0);
}

TEST_F(Stage, gives_a_victim_more_time_for_the_culprit_to_show) {
  shows(0, Liveness::kRunning, 1, true);
  fails(0);
  ends(3.5, Reason::kFault);  // 2 s until a guard counts as silent, and 0.5 s more
  shows(3, Liveness::kDead);
  EXPECT_EQ(ranks.decide(at(1.5), 0), Reason::kFault);
}

TEST_F(Stage, waits_for_a_process_in_disk_sleep_until_the_deadline) {
  shows(1, Liveness::kUninterruptible);
  ends(30, Reason::kDeadline);
}

TEST_F(Stage, is_terminated_when_only_launchers_signals_explain_it) {
  shows(1, Liveness::kRunning, 1, false, 15);
  ends(3.0, Reason::kTerminated);
  shows(2, Liveness::kDead, 2);
  EXPECT_EQ(ranks.decide(at(3.0), 0), Reason::kFault);
}

TEST_F(Stage, keeps_the_time_of_a_fault_as_its_guard_saw_it) {
  State state;
  state.life = Liveness::kDead;
  state.fault_age_ns = kSecond / 10;
  ranks.set_state(2, state, kStart + kSecond);
  EXPECT_EQ(ranks.record(2).fault_ns, kStart + kSecond - kSecond / 10);
  ranks.set_contact(2, Contact::kClosed, kStart + 2 * kSecond);
  EXPECT_EQ(ranks.record(2).fault_ns, kStart + kSecond - kSecond / 10) << "the first one counts";
}

TEST_F(Stage, forgets_results_but_not_deaths_when_the_next_begins) {
  results_of({0, 1, 2, 3});
  shows(2, Liveness::kDead);
  ranks.begin(2, kDeadline, at(2));
  EXPECT_EQ(ranks.results(), 0);
  ends(2.5, Reason::kFault);
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
