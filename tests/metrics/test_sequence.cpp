// One row an iteration: several writers, late lines, new starts; and the excursions of a series.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "metrics/excursion.hpp"
#include "metrics/sequence.hpp"

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
    EXPECT_FALSE(step.disagree);
  }
}

TEST(Sequence, ARankThatDisagreesIsNamedUnlessAllPrintTheirOwnLoss) {
  const std::vector<Step> steps = sequence(of_writers(
      30, 4, [](int step, std::uint64_t writer) { return step == 20 && writer == 3 ? 2.6 : 2.5; }));
  ASSERT_EQ(steps.size(), 30U);
  EXPECT_TRUE(steps[19].disagree);
  EXPECT_EQ(steps[19].disagreement.ranks, std::vector<int>{2});
  EXPECT_EQ(steps[19].disagreement.other, 2.6);
  const auto own = [](int, std::uint64_t writer) {
    return 2.5 + 0.01 * static_cast<double>(writer);
  };
  for (const Step& step : sequence(of_writers(30, 4, own))) EXPECT_FALSE(step.disagree);
}

TEST(Sequence, IterationsThatGoBackAreARestart) {
  std::vector<Row> rows;
  for (int step = 10; step <= 150; step += 10) rows.push_back(row(step, 3 - step / 1e3, 1, step));
  for (int step = 110; step <= 200; step += 10) {
    rows.push_back(row(step, 3.1 - step / 1e3, 1, 1000 + step));
  }
  const std::vector<Step> steps = sequence(rows);
  ASSERT_EQ(steps.size(), 25U);
  EXPECT_TRUE(steps[15].restarted);
  EXPECT_EQ(steps[15].lost, 50);
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

constexpr Rule kRule{0.01, 0.1, 1, 3, 2, 2, 31};

TEST(Excursion, FiresOnALastingRiseAndSaysWhenItIsOver) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.01);
  Excursion away(kRule);
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(away.add(1 + noise(random), i), Excursion::Event::none);
  }
  int fired = -1;
  for (int i = 300; i < 310; ++i) {
    if (away.add(1.5 + noise(random), i) == Excursion::Event::fired) fired = i;
  }
  EXPECT_EQ(fired, 302);
  EXPECT_EQ(away.first(), 300);
  EXPECT_NEAR(away.typical(), 0.5, 0.05);
  EXPECT_EQ(away.add(1, 310), Excursion::Event::none);
  EXPECT_EQ(away.add(1, 311), Excursion::Event::recovered);
  EXPECT_EQ(away.recovered(), 310);
}

TEST(Excursion, ASeriesThatAlwaysDidSuchThingsIsHealthy) {
  std::mt19937 random(2);
  std::normal_distribution<double> noise(0, 0.01);
  Excursion away(kRule);
  int fired = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool wave = i % 40 < 4;  // slow rows one after another, from the beginning
    fired += away.add(1 + noise(random) + (wave ? 0.3 : 0), i) == Excursion::Event::fired ? 1 : 0;
  }
  EXPECT_EQ(fired, 0);
}

TEST(Excursion, ALevelThatLastsBecomesTheLevel) {
  Excursion away(kRule);
  for (int i = 0; i < 100; ++i) away.add(1 + 0.001 * (i % 7), i);
  for (int i = 100; i < 500; ++i) away.add(2 + 0.001 * (i % 7), i);
  EXPECT_FALSE(away.is_away());
  EXPECT_NEAR(away.level(), 2, 0.01);
}

TEST(BlockShift, FindsAShiftThatNoiseHidesRowByRow) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 0.1);
  BlockShift shift(64, 0.03);
  int fired = -1;
  for (int i = 0; i < 64 * 40 && fired < 0; ++i) {
    if (shift.add(noise(random) + (i >= 64 * 30 ? 0.25 : 0), i)) fired = i;
  }
  EXPECT_GE(fired, 64 * 30);
  EXPECT_NEAR(shift.shift(), 0.25, 0.05);
}

}  // namespace
}  // namespace oddrank::metrics
