// Each peer's median of its repeats, and how much one repeat varies over all; odd repeats change
// neither.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "stats/statistics.hpp"

namespace {

using oddrank::sum_up;

using Peers = std::vector<std::vector<double>>;

// Each peer takes 100 and `noise` of that more or less.
Peers times(std::size_t peers, std::size_t repeats, double noise) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  Peers made(peers, std::vector<double>(repeats));
  for (auto& peer : made) {
    for (double& time : peer) time = 100 * std::exp(noise * normal(random));
  }
  return made;
}

TEST(Repeats, TheMedianOfAnEvenCountIsBetweenTheTwoInTheMiddle) {
  const auto found = sum_up({{1, 4, 100, 0.01}, {7, 5, 9}}, false);
  EXPECT_NEAR(found.medians[0], std::log(2.0), 1e-12);
  EXPECT_NEAR(found.medians[1], std::log(7.0), 1e-12);
}

TEST(Repeats, TheNoiseIsThatOfOneRepeatHoweverFewAPeerHas) {
  for (const std::size_t repeats : {2, 3, 4, 9, 100}) {
    const auto found = sum_up(times(20'000 / repeats, repeats, 0.02), false);
    EXPECT_GT(*found.noise, 0.0175) << repeats;
    EXPECT_LT(*found.noise, repeats == 3 ? 0.027 : 0.0225) << repeats;  // of three a bit too much
    EXPECT_EQ(found.deviations, (repeats - 1) * (20'000 / repeats));
  }
}

TEST(Repeats, AFewOddOnesAddNothingToTheNoiseNorToAScatter) {
  auto peers = times(8, 25, 0.02);
  const auto before = sum_up(peers, false);
  for (auto& peer : peers) peer[3] = peer[17] = 1e9;
  const auto after = sum_up(peers, false);
  EXPECT_NEAR(*after.noise, *before.noise, 0.006);
  for (const double scatter : after.scatters) EXPECT_LT(scatter, 0.06);
}

TEST(Repeats, WhoJittersMoreHasMoreScatter) {
  auto peers = times(8, 25, 0.01);
  peers[5] = times(6, 25, 0.1)[5];
  const auto found = sum_up(peers, false);
  EXPECT_GT(found.scatters[5], 4 * found.scatters[4]);
}

TEST(Repeats, OneRepeatEachTellsNoNoise) {
  const auto found = sum_up({{1}, {2}}, false);
  EXPECT_FALSE(found.noise);
  EXPECT_EQ(found.deviations, 0U);
  EXPECT_EQ(found.scatters, std::vector<double>({0, 0}));
}

}  // namespace
