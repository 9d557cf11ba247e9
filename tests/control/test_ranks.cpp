// When a stage ends, and why: pure bookkeeping on a simulated clock.
#include <gtest/gtest.h>

#include "control/ranks.hpp"

namespace oddrank::control::ranks_test {
namespace {

using enum Contact;
using enum Liveness;
using enum Reason;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kStart = 1'000 * kSecond;
constexpr std::int64_t kEnd = kStart + 30 * kSecond;

std::int64_t at(double seconds) { return kStart + static_cast<std::int64_t>(seconds * 1e9); }

// Ranks of which a guard counts as silent after 2 s. `came` of them are there before kStart.
struct Job : Ranks {
  explicit Job(int world, int came, std::uint32_t stage) : Ranks(world, 2 * kSecond) {
    for (int rank = 0; rank < came; ++rank) joined(rank, Hello{}, at(-1));
    begin(stage, kEnd, kStart);
  }
  void has(int rank, auto fact, auto value) {
    State state;
    state.*fact = value;
    set_state(rank, state, at(1));
  }
  void shows(int rank, Liveness life) { has(rank, &State::life, life); }
  void is_told_to_end(int rank) { has(rank, &State::terminated, 15); }
  void is_victim(int rank) { has(rank, &State::waiting, true), fails(rank); }
  void is_orphan(int rank, const char* launcher) {
    record(rank).hello.launcher = launcher;
    has(rank, &State::orphaned, true);
  }
  void fails(int rank) { set_failure(rank, 1, "RuntimeError: timed out", at(1)); }
  void results_of(int ranks, std::uint32_t stage = 1) {
    for (int rank = 0; rank < ranks; ++rank) set_result(rank, stage, "r");
  }
};

struct Row {
  const char* what;
  double ends;  // seconds after the stage began; it is open 0.1 s before
  Reason why;
  void (*happens)(Job&);  // after 1 s, to four ranks that came
};
constexpr Row kRows[] = {
    {"three results", 30, kDeadline, [](Job& job) { job.results_of(3); }},
    {"results of another stage", 30, kDeadline, [](Job& job) { job.results_of(4, 2); }},
    {"results of join", 30, kDeadline, [](Job& job) { job.results_of(4, 0); }},
    {"a death", 1.5, kFault, [](Job& job) { job.shows(2, kDead); }},
    {"a zombie", 1.5, kFault, [](Job& job) { job.shows(2, kZombie); }},
    {"a death, two results", 1.5, kFault, [](Job& job) { job.shows(2, kDead), job.results_of(2); }},
    {"a silent guard", 1.5, kFault, [](Job& job) { job.set_contact(2, kSilent, at(1)); }},
    {"a guard that ended", 1.5, kFault, [](Job& job) { job.set_contact(2, kClosed, at(1)); }},
    {"a guard gave up", 1.5, kFault, [](Job& job) { job.set_parting(2, "silent", at(1)); }},
    {"an error", 1.5, kFault, [](Job& job) { job.fails(0); }},
    {"a victim, of a guard that is silent soon", 3.5, kFault, [](Job& job) { job.is_victim(0); }},
    {"a victim, a death", 1.5, kFault, [](Job& job) { job.is_victim(0), job.shows(3, kDead); }},
    {"a stop", 3, kFault, [](Job& job) { job.shows(1, kStopped); }},
    {"a stop that ended", 30, kDeadline,
     [](Job& job) { job.shows(1, kStopped), job.shows(1, kRunning); }},
    {"disk sleep", 30, kDeadline, [](Job& job) { job.shows(1, kUninterruptible); }},
    {"a launcher's signal", 3, kTerminated, [](Job& job) { job.is_told_to_end(1); }},
    {"its signal, a death", 1.5, kFault,
     [](Job& job) { job.is_told_to_end(1), job.shows(2, kDead); }},
    {"its launcher has gone", 1.5, kFault, [](Job& job) { job.is_orphan(1, "torchrun"); }},
    {"it needs no launcher", 30, kDeadline, [](Job& job) { job.is_orphan(1, ""); }},
};

TEST(Stage, ends_when_a_fault_is_explained_or_its_time_is_up) {
  for (const Row& row : kRows) {
    Job job(4, 4, 1);
    row.happens(job);
    EXPECT_EQ(job.decide(at(row.ends - 0.1), 0), kOpen) << row.what;
    EXPECT_EQ(job.decide(at(row.ends), 0), row.why) << row.what;
  }
}

TEST(Stage, ends_at_once_when_everybody_is_accounted_for_and_is_complete_with_all_results) {
  Job job(4, 4, 1);
  job.shows(2, kDead);
  job.results_of(2);
  job.fails(3);
  EXPECT_EQ(job.decide(at(1.1), 0), kFault);
  job.results_of(4);
  EXPECT_EQ(job.decide(at(1.1), 0), kComplete);
}

TEST(Stage, keeps_the_time_of_a_fault_as_its_guard_saw_it) {
  Job job(4, 4, 1);
  State state;
  state.life = kDead;
  state.fault_age_ns = kSecond / 10;
  job.set_state(2, state, at(1));
  EXPECT_EQ(job.record(2).fault_ns, at(0.9));
  job.set_contact(2, kClosed, at(2));
  EXPECT_EQ(job.record(2).fault_ns, at(0.9)) << "the first one counts";
  job.shows(1, kStopped);
  job.shows(1, kRunning);
  EXPECT_EQ(job.record(1).fault_ns, 0);
}

TEST(Stage, forgets_results_but_not_deaths_when_the_next_begins) {
  Job job(4, 4, 1);
  job.results_of(4);
  job.shows(2, kDead);
  job.begin(2, kEnd, at(2));
  EXPECT_EQ(job.results(), 0);
  EXPECT_EQ(job.decide(at(2.4), 0), kOpen);
  EXPECT_EQ(job.decide(at(2.5), 0), kFault);
}

TEST(Join, has_the_ranks_that_came_as_its_results) {
  Job job(3, 2, 0);
  EXPECT_EQ(job.decide(at(1), 0), kOpen);
  EXPECT_EQ(job.decide(at(1), kStart), kFault) << "nobody else can come";
  job.joined(2, Hello{}, kStart);
  EXPECT_EQ(job.decide(at(1), 0), kComplete);
}

TEST(Join, sees_a_rank_that_never_came_as_a_fault_of_every_later_stage) {
  Job job(2, 1, 1);
  job.results_of(1);
  EXPECT_EQ(job.decide(at(1), 0), kFault);
}

}  // namespace
}  // namespace oddrank::control::ranks_test
