// Recording stays within its budget: the hottest code goes down, quiet code comes back.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "trace/write/budget.hpp"

namespace oddrank::trace::budget_test {
namespace {

constexpr EventCosts kCosts{30, 40};
constexpr double kShare = 0.03;
constexpr std::uint64_t kMs = 1'000'000;

// What a code object does in a millisecond of CPU time, if it is recorded by lines.
struct Work {
  std::uint32_t lines = 0;
  std::uint32_t calls = 0;  // begins and ends
};

// A process with one thread: only recorded events happen, reviews come where the budget wants them.
class Process {
 public:
  explicit Process(Level lowest = Level::kOff, double share = kShare) {
    budget.start(share, kCosts);
    budget.set_lowest(lowest);
  }
  void add(std::uint32_t code, Work work, Level wanted = Level::kLines) {
    works[code] = work;
    budget.add(code, wanted);
  }
  // Returns the share of CPU time that recording took.
  double run(int milliseconds) {
    double spent = 0;
    for (int ms = 0; ms < milliseconds; ++ms) {
      for (int part = 0; part < kParts; ++part) {
        for (const auto& [code, work] : works) spent += record(code, work);
        now_ns += kMs / kParts;
        if (events_left <= 0) review();
      }
    }
    return spent / (static_cast<double>(milliseconds) * kMs);
  }
  Level level(std::uint32_t code) const { return budget.level(code); }

  Budget budget;
  std::map<std::uint32_t, Work> works;
  std::vector<LevelChange> lasting;
  int trials = 0;  // changes that don't last

 private:
  static constexpr int kParts = 10;

  double record(std::uint32_t code, Work work) {
    const Level level = budget.level(code);
    carried_[code].lines += level == Level::kLines ? work.lines : 0;
    carried_[code].calls += level == Level::kOff ? 0 : work.calls;
    Work& now = carried_[code];
    double spent = 0;
    for (; now.lines >= kParts; now.lines -= kParts, --events_left, spent += kCosts.line) {
      budget.count_line(code);
    }
    for (; now.calls >= kParts; now.calls -= kParts, --events_left, spent += kCosts.call) {
      budget.count_call(code);
    }
    return spent;
  }
  void review() {
    for (const LevelChange& change : budget.review(now_ns - reviewed_ns_, now_ns)) {
      if (change.lasting) lasting.push_back(change);
      trials += change.lasting ? 0 : 1;
    }
    reviewed_ns_ = now_ns;
    events_left = budget.pause();
  }

  std::uint64_t now_ns = 0;
  std::uint64_t reviewed_ns_ = 0;
  std::int64_t events_left = 4096;
  std::map<std::uint32_t, Work> carried_;  // tenths of events
};

TEST(Budget, code_under_the_budget_stays_as_it_is) {
  Process process;
  process.add(1, {.lines = 400, .calls = 100});  // 1.6 %
  process.add(2, {.lines = 100});
  EXPECT_LT(process.run(10'000), kShare);
  EXPECT_TRUE(process.lasting.empty());
  EXPECT_EQ(process.trials, 0);
}

TEST(Budget, code_that_runs_often_for_a_moment_only_stays_as_it_is) {
  Process process;
  process.add(1, {.lines = 10});
  process.run(5000);
  process.add(2, {.lines = 20'000, .calls = 4000});  // 76 % for 20 ms
  process.run(20);
  process.works[2] = {};
  process.run(5000);
  EXPECT_TRUE(process.lasting.empty());
}

TEST(Budget, only_the_hot_code_goes_down) {
  Process process;
  process.add(1, {.lines = 20'000, .calls = 10'000});
  process.add(2, {.lines = 20, .calls = 10});
  process.run(2000);
  EXPECT_EQ(process.level(2), Level::kLines);
  EXPECT_LT(process.run(10'000), kShare);
  EXPECT_EQ(process.level(2), Level::kLines);
  ASSERT_FALSE(process.lasting.empty());
  EXPECT_EQ(process.lasting.back().code, 1U);
  EXPECT_EQ(process.lasting.back().level, Level::kOff);
}

TEST(Budget, a_loop_in_one_call_keeps_its_call) {
  Process process;
  process.add(1, {.lines = 30'000});
  process.run(2000);
  ASSERT_EQ(process.lasting.size(), 1U);
  EXPECT_EQ(process.lasting[0].level, Level::kCalls);
  EXPECT_LT(process.run(10'000), kShare);
}

TEST(Budget, of_many_warm_code_objects_the_hottest_go_down_until_the_rest_fits) {
  Process process;
  for (std::uint32_t code = 1; code <= 40; ++code) process.add(code, {.calls = 10 * code});
  process.run(2000);
  EXPECT_LT(process.run(10'000), kShare);
  EXPECT_EQ(process.level(1), Level::kLines);
  EXPECT_EQ(process.level(5), Level::kLines);
  for (const LevelChange& change : process.lasting) EXPECT_GT(change.code, 5U);
}

TEST(Budget, code_that_has_become_quiet_is_recorded_as_before) {
  Process process;
  process.add(1, {.lines = 20'000, .calls = 10'000});
  process.add(2, {.lines = 20, .calls = 10});
  process.run(3000);
  EXPECT_EQ(process.lasting.back().level, Level::kOff);
  process.works[1] = {.lines = 1, .calls = 1};
  process.run(40'000);
  EXPECT_EQ(process.level(1), Level::kLines);
  EXPECT_EQ(process.lasting.back().level, Level::kLines);
}

TEST(Budget, trials_of_hot_code_are_short_and_leave_no_note) {
  Process process;
  process.add(1, {.lines = 20'000, .calls = 10'000});
  process.add(2, {.lines = 20, .calls = 10});
  process.run(3000);
  const std::size_t notes = process.lasting.size();
  EXPECT_LT(process.run(40'000), kShare / 5);
  EXPECT_GE(process.trials, 4);
  EXPECT_EQ(process.lasting.size(), notes);
}

TEST(Budget, code_that_is_affordable_by_calls_rises_to_calls) {
  Process process;
  process.add(1, {.lines = 20'000, .calls = 10'000});
  process.add(2, {.lines = 20, .calls = 10});
  process.run(3000);
  process.works[1] = {.lines = 20'000, .calls = 100};
  process.run(40'000);
  EXPECT_EQ(process.lasting.back().level, Level::kCalls);
}

TEST(Budget, without_the_stack_as_the_lowest_level_code_stays_there_and_others_too) {
  Process process(Level::kWhere);
  process.add(1, {.lines = 20'000, .calls = 10'000});
  process.add(2, {.lines = 200, .calls = 100});
  process.run(3000);
  EXPECT_EQ(process.lasting.back().level, Level::kWhere);
  process.run(10'000);
  EXPECT_EQ(process.level(2), Level::kLines);
}

TEST(Budget, a_place_to_wait_stays_however_often_it_is_called) {
  Process process;
  process.add(1, {.calls = 10'000}, Level::kWhere);
  process.add(2, {.lines = 200, .calls = 100});
  process.run(10'000);
  EXPECT_TRUE(process.lasting.empty());
  EXPECT_EQ(process.trials, 0);
}

TEST(Budget, code_that_is_below_the_lowest_level_stays_there) {
  Process process(Level::kCalls);
  process.add(1, {.lines = 20'000, .calls = 10'000});
  process.add(2, {.calls = 10'000}, Level::kWhere);
  process.run(3000);
  EXPECT_EQ(process.level(1), Level::kCalls);
  EXPECT_EQ(process.level(2), Level::kWhere);
}

TEST(Budget, without_a_limit_nothing_changes) {
  Process process(Level::kOff, 0);
  process.add(1, {.lines = 20'000, .calls = 10'000});
  process.run(2000);
  EXPECT_TRUE(process.lasting.empty());
}

TEST(Budget, everything_rises_at_a_new_start) {
  Process process;
  process.add(1, {.lines = 20'000, .calls = 10'000});
  process.run(2000);
  const auto changes = process.budget.raise_all();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].level, Level::kLines);
  EXPECT_TRUE(changes[0].lasting);
}

TEST(Budget, equal_code_shares_its_level) {
  Process process;
  process.add(1, {.lines = 20'000, .calls = 10'000});
  process.run(2000);
  const Level lowered = process.level(1);
  EXPECT_LT(lowered, Level::kLines);
  EXPECT_TRUE(process.budget.add(1, Level::kLines));
  EXPECT_EQ(process.level(1), lowered);
}

TEST(Budget, reviews_of_many_code_objects_are_as_rare_as_they_are_dear) {
  Process process;
  const std::uint32_t before = process.budget.pause();
  process.add(100'000, {});
  EXPECT_GT(process.budget.pause(), before);
}

}  // namespace
}  // namespace oddrank::trace::budget_test
