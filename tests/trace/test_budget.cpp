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
  explicit Process(Level lowest = Level::kOff, double share = kShare, bool may_rest = false)
      : may_rest_(may_rest) {
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
        if (budget.is_rested(now_ns)) {
          budget.wake(now_ns);
          reviewed_ns_ = now_ns;
          ++wakes;
        }
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
  int wakes = 0;

 private:
  static constexpr int kParts = 10;
  bool may_rest_;

  double record(std::uint32_t code, Work work) {
    if (budget.rests()) return 0;
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
    for (const LevelChange& change : budget.review(now_ns - reviewed_ns_, now_ns, may_rest_)) {
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

constexpr Work kHot{.lines = 20'000, .calls = 10'000};
constexpr Work kCool{.lines = 20, .calls = 10};

TEST(Budget, code_stays_as_it_is_under_the_budget_or_without_one_or_as_a_place_to_wait) {
  const struct {
    const char* why;
    Work work;
    Level wanted = Level::kLines;
    double share = kShare, most = 2;
  } rows[] = {{"1.6 %", {.lines = 400, .calls = 100}, Level::kLines, kShare, kShare},
              {"a place to wait", {.calls = 10'000}, Level::kWhere},
              {"without a limit", kHot, Level::kLines, 0}};
  for (const auto& row : rows) {
    Process process(Level::kOff, row.share);
    process.add(1, row.work, row.wanted);
    process.add(2, {.lines = 100});
    EXPECT_LT(process.run(10'000), row.most) << row.why;
    EXPECT_TRUE(process.lasting.empty()) << row.why;
    EXPECT_EQ(process.trials, 0) << row.why;
    process.add(3, {.lines = 20'000, .calls = 4000});  // 76 % for 20 ms
    process.run(20);
    process.works[3] = {};
    process.run(5000);
    EXPECT_TRUE(process.lasting.empty()) << row.why << ", hot for a moment";
  }
}

TEST(Budget, hot_code_goes_down_to_the_level_that_fits_and_the_lowest_one) {
  const struct {
    const char* why;
    Work work;
    Level lowest, wanted, becomes;
  } rows[] = {{"calls and lines", kHot, Level::kOff, Level::kLines, Level::kOff},
              {"a loop in one call", {.lines = 30'000}, Level::kOff, Level::kLines, Level::kCalls},
              {"keeps the stack", kHot, Level::kWhere, Level::kLines, Level::kWhere},
              {"keeps its calls", kHot, Level::kCalls, Level::kLines, Level::kCalls},
              {"below the lowest one", kHot, Level::kCalls, Level::kWhere, Level::kWhere}};
  for (const auto& row : rows) {
    Process process(row.lowest);
    process.add(1, row.work, row.wanted);
    process.add(2, {.lines = 200, .calls = 100});
    process.run(3000);
    EXPECT_EQ(process.level(1), row.becomes) << row.why;
    process.run(10'000);
    EXPECT_EQ(process.level(2), Level::kLines) << row.why;
    EXPECT_EQ(process.lasting.empty(), row.becomes == row.wanted) << row.why;
    for (const LevelChange& change : process.lasting) {
      EXPECT_EQ(change.code, 1U) << row.why;
      EXPECT_GE(change.level, row.lowest) << row.why;
    }
  }
}

TEST(Budget, hot_code_is_tried_in_short_and_rises_to_what_it_has_become) {
  const struct {
    Work later;
    Level rises;
  } rows[] = {{kHot, Level::kOff},
              {{.lines = 20'000, .calls = 100}, Level::kCalls},
              {{.lines = 1, .calls = 1}, Level::kLines}};
  for (const auto& row : rows) {
    Process process;
    process.add(1, kHot);
    process.add(2, kCool);
    process.run(3000);
    EXPECT_EQ(process.lasting.back().level, Level::kOff);
    const std::size_t notes = process.lasting.size();
    process.works[1] = row.later;
    const double share = process.run(40'000);
    EXPECT_EQ(process.lasting.back().level, row.rises);
    EXPECT_TRUE(row.rises != Level::kLines || process.level(1) == Level::kLines);
    if (row.rises != Level::kOff) continue;
    EXPECT_LT(share, kShare / 5);
    EXPECT_GE(process.trials, 4);
    EXPECT_EQ(process.lasting.size(), notes) << "trials leave no note";
  }
}

TEST(Budget, all_code_rests_if_its_lowest_level_costs_too_much_and_wakes_when_it_is_quiet) {
  Process process(Level::kCalls, kShare, true);
  process.add(1, kHot);
  process.add(2, kCool);
  process.run(500);
  EXPECT_TRUE(process.budget.rests());
  EXPECT_TRUE(process.lasting.empty());
  EXPECT_LT(process.run(40'000), kShare / 5);
  EXPECT_GE(process.wakes, 4);
  EXPECT_LE(process.wakes, 8);
  EXPECT_EQ(process.level(1), Level::kLines);
  process.works[1] = {.lines = 1, .calls = 1};
  process.run(20'000);
  EXPECT_FALSE(process.budget.rests());
  EXPECT_EQ(process.level(1), Level::kLines);
}

TEST(Budget, no_code_rests_below_three_budgets) {
  Process process(Level::kCalls, kShare, true);
  process.add(1, {.lines = 1'100, .calls = 200});  // 4 %, and 8 % with the interpreter's part
  process.run(20'000);
  EXPECT_FALSE(process.budget.rests());
  EXPECT_EQ(process.level(1), Level::kCalls);
}

TEST(Budget, equal_code_shares_its_level_and_everything_rises_at_a_new_start) {
  Process process;
  process.add(1, kHot);
  process.run(2000);
  const Level lowered = process.level(1);
  EXPECT_LT(lowered, Level::kLines);
  EXPECT_TRUE(process.budget.add(1, Level::kLines));
  EXPECT_EQ(process.level(1), lowered);
  const auto changes = process.budget.raise_all();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].level, Level::kLines);
  EXPECT_TRUE(changes[0].lasting);
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

TEST(Budget, reviews_of_many_code_objects_are_as_rare_as_they_are_dear) {
  Process process;
  const std::uint32_t before = process.budget.pause();
  process.add(100'000, {});
  EXPECT_GT(process.budget.pause(), before);
}

}  // namespace
}  // namespace oddrank::trace::budget_test
