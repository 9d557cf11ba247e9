// One row an iteration: several writers, late lines, new starts; and the rule for series.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "metrics/sequence.hpp"
#include "metrics/series.hpp"

namespace oddrank::metrics {
namespace {

Row row(double iteration, double loss, std::uint64_t writer = 0, double time = kUnknown) {
  Row made;
  made[kIteration] = iteration;
  made[kLoss] = loss;
  made[kTime] = time;
  made.writer = writer;
  made.rank = writer == 0 ? -1 : static_cast<int>(writer) - 1;
  return made;
}

Row sign(Row::Kind kind) {
  Row made;
  made.kind = kind;
  return made;
}

// Rows of steps 1 to `last`, a row of each of the writers; loss: of a step and a writer.
template <typename Loss>
std::vector<Row> of_writers(int last, std::uint64_t writers, Loss loss) {
  std::vector<Row> rows;
  for (int step = 1; step <= last; ++step) {
    for (std::uint64_t writer = 1; writer <= writers; ++writer) {
      rows.push_back(row(step, loss(step, writer), writer));
    }
  }
  return rows;
}

std::vector<Step> sequence(const std::vector<Row>& rows) {
  Sequence all;
  std::vector<Step> steps;
  for (const Row& each : rows) all.add(each, steps);
  all.flush(steps);
  return steps;
}

TEST(Sequence, ALineOfManyRanksCountsOnce) {
  std::vector<Row> rows = of_writers(20, 8, [](int, std::uint64_t) { return 2.5; });
  std::rotate(rows.begin() + 10, rows.begin() + 11, rows.begin() + 17);  // rank 2 is late
  const std::vector<Step> steps = sequence(rows);
  ASSERT_EQ(steps.size(), 20U);
  for (const Step& step : steps) {
    EXPECT_FALSE(step.restarted);
    EXPECT_FALSE(step.disagreement.writers > 0);
  }
}

TEST(Sequence, ARankThatDisagreesIsNamedUnlessAllPrintTheirOwnLoss) {
  const std::vector<Step> steps = sequence(of_writers(
      30, 4, [](int step, std::uint64_t writer) { return step == 20 && writer == 3 ? 2.6 : 2.5; }));
  ASSERT_EQ(steps.size(), 30U);
  EXPECT_TRUE(steps[19].disagreement.writers > 0);
  EXPECT_EQ(steps[19].disagreement.ranks, std::vector<int>{2});
  EXPECT_EQ(steps[19].disagreement.other, 2.6);
  const auto own = [](int, std::uint64_t writer) {
    return 2.5 + 0.01 * static_cast<double>(writer);
  };
  for (const Step& step : sequence(of_writers(30, 4, own)))
    EXPECT_FALSE(step.disagreement.writers > 0);
}

TEST(Sequence, ANewStartAtTheNextIterationLosesNothing) {
  const std::vector<Step> steps =
      sequence({row(1, 3), row(2, 3), sign(Row::Kind::start), row(3, 3), row(4, 3)});
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_TRUE(steps[2].restarted);
  EXPECT_EQ(steps[2].lost, 0);
  EXPECT_FALSE(steps[3].restarted);
}

TEST(Sequence, LateLinesAreNoRestartAndRowsThatNameNoIterationAreCounted) {
  EXPECT_EQ(sequence({row(1, 3.1), row(1, 3.1), row(2, 3.2), row(3, 3.3), row(2, 3.2), row(3, 3.3),
                      row(4, 3.4)})
                .size(),
            4U);
  const std::vector<Step> steps = sequence({row(kUnknown, 3), row(kUnknown, 3), row(kUnknown, 2)});
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[2].row[kIteration], 3);
}

constexpr Limits kLimits{0.4, 0.15, 0.1, 0.15, 1};

// Adds rows of a level with noise, which does not depend on other tests. Returns the events but
// those of growth.
std::vector<Series::Event> add(Series& series, double level, int first, int last, double sd = 0.01,
                               unsigned seed = 1) {
  std::mt19937 random(seed + static_cast<unsigned>(first));
  std::normal_distribution<double> noise(0, sd);
  std::vector<Series::Event> events;
  for (int i = first; i < last; ++i) {
    const Series::Event event = series.add(level * std::exp(noise(random)), i, i);
    if (event != Series::Event::none && event != Series::Event::grew) events.push_back(event);
  }
  return events;
}
using Events = std::vector<Series::Event>;

TEST(Series, ARiseBeginsAndIsOver) {
  Series series(kLimits);
  EXPECT_EQ(add(series, 2, 0, 300), Events{});
  EXPECT_EQ(add(series, 2.6, 300, 303), Events{Series::Event::began});
  EXPECT_EQ(add(series, 2.6, 303, 310), Events{});
  EXPECT_EQ(add(series, 2, 310, 400), Events{Series::Event::over});
  EXPECT_EQ(series.change().first, 300);
  EXPECT_EQ(series.change().until, 310);
  EXPECT_EQ(series.change().count, 10);
  EXPECT_EQ(series.change().known, 300);
}

TEST(Series, ALevelThatLastsBecomesTheLevelAndANewRiseIsFound) {
  Series series(kLimits);
  add(series, 2, 0, 100);
  EXPECT_EQ(add(series, 3, 100, 500), Events{Series::Event::began});
  EXPECT_EQ(add(series, 4, 500, 600), Events{Series::Event::began});
  EXPECT_EQ(series.change().first, 500);
  EXPECT_NEAR(series.change().level, 3, 0.05);
}

TEST(Series, AShiftThatNoiseHidesRowByRowIsFoundByWindows) {
  int steps = 0;
  int near = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Series series(kLimits);
    ASSERT_EQ(add(series, 1, 0, 64 * 30, 0.1, seed), Events{}) << seed;
    const Events events = add(series, 1.25, 64 * 30, 64 * 40, 0.1, seed);
    ASSERT_FALSE(events.empty()) << seed;
    ASSERT_EQ(events[0], Series::Event::began) << seed;
    steps += series.change().shape == "step" ? 1 : 0;
    near += std::abs(series.change().first - 64 * 30) <= 64 ? 1 : 0;
  }
  // The best level of noise is a low one, so that some look like a drift that began earlier.
  EXPECT_GE(steps, 70);
  EXPECT_GE(near, 85);
}

TEST(Series, WhatCameBackBeforeIsUsual) {
  Series series(kLimits);
  for (int i = 0; i < 4000; i += 40) {  // slow rows one after another, from the beginning
    EXPECT_EQ(add(series, 1, i, i + 36), Events{}) << i;
    const Events events = add(series, 1.1, i + 36, i + 40);
    EXPECT_EQ(events, Events{}) << i;
  }
}

TEST(Series, ANewStartIsComparedWithWhatWasBeforeItsIteration) {
  Series series(kLimits);
  for (int i = 0; i < 400; ++i) series.add(10.0 / (1 + i / 50.0) + 0.01 * (i % 3), i, i);
  series.rewind(100);
  for (int i = 100; i < 400; ++i) {
    ASSERT_EQ(series.add(10.0 / (1 + i / 50.0) + 0.01 * (i % 3), i, i), Series::Event::none) << i;
  }
}

}  // namespace
}  // namespace oddrank::metrics
