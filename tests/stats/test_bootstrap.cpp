// The interval of a ratio of medians holds the truth as often as it says, also of times that depend
// on each other.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "os/error.hpp"
#include "stats/statistics.hpp"

namespace {

using oddrank::block_length;
using oddrank::ratio_of_medians;
using oddrank::RatioInterval;

using Series = std::vector<double>;

// Times around 100 of which each keeps `memory` of the disturbance before it.
Series times(std::size_t count, double memory, double noise, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  Series made(count);
  double disturbance = normal(random);
  for (double& time : made) {
    disturbance = memory * disturbance + std::sqrt(1 - memory * memory) * normal(random);
    time = 100 * std::exp(noise * disturbance);
  }
  return made;
}

// The share of `trials` pairs of series with one median whose interval holds 1.
double coverage(std::size_t count, double memory, int trials) {
  std::mt19937_64 random(7);
  int held = 0;
  for (int i = 0; i < trials; ++i) {
    const Series over = times(count, memory, 0.1, random);
    const Series under = times(count, memory, 0.1, random);
    const RatioInterval found =
        ratio_of_medians(over, under, {0.99, 500, static_cast<std::uint64_t>(i)});
    held += static_cast<int>(found.low <= 1 && 1 <= found.high);
  }
  return static_cast<double>(held) / trials;
}

TEST(Bootstrap, holds_the_truth_as_often_as_it_says) {
  EXPECT_GT(coverage(10, 0, 400), 0.97);
  EXPECT_GT(coverage(50, 0, 400), 0.97);
  EXPECT_GT(coverage(400, 0, 400), 0.97);
}

TEST(Bootstrap, holds_it_also_where_times_depend_on_those_before) {
  EXPECT_GT(coverage(100, 0.5, 400), 0.96);
  EXPECT_GT(coverage(400, 0.8, 400), 0.96);
  EXPECT_GT(coverage(50, 0.9, 400), 0.90);  // a handful of disturbances in all
}

TEST(Bootstrap, draws_longer_blocks_the_longer_a_disturbance_lasts) {
  std::mt19937_64 random(1);
  const std::size_t least = block_length(times(500, 0, 0.1, random));
  EXPECT_EQ(least, 8U);  // the cube root
  const std::size_t some = block_length(times(500, 0.7, 0.1, random));
  const std::size_t more = block_length(times(500, 0.95, 0.1, random));
  EXPECT_GT(some, least);
  EXPECT_GT(more, some);
}

TEST(Bootstrap, is_not_misled_by_a_few_huge_outliers) {
  std::mt19937_64 random(3);
  Series over = times(200, 0, 0.02, random);
  const Series under = times(200, 0, 0.02, random);
  for (std::size_t i = 0; i < over.size(); i += 20) over[i] *= 1000;
  const RatioInterval found = ratio_of_medians(over, under, {});
  EXPECT_NEAR(found.ratio, 1, 0.02);
  EXPECT_LT(found.high, 1.05);
}

TEST(Bootstrap, gives_the_same_interval_for_the_same_seed) {
  std::mt19937_64 random(5);
  const Series over = times(64, 0.3, 0.1, random);
  const Series under = times(64, 0.3, 0.1, random);
  const RatioInterval first = ratio_of_medians(over, under, {0.99, 1000, 9});
  const RatioInterval again = ratio_of_medians(over, under, {0.99, 1000, 9});
  EXPECT_EQ(first.low, again.low);
  EXPECT_EQ(first.high, again.high);
  EXPECT_NE(first.low, ratio_of_medians(over, under, {0.99, 1000, 10}).low);
}

TEST(Bootstrap, is_sure_of_times_that_are_all_the_same) {
  const RatioInterval found = ratio_of_medians(Series(20, 3.0), Series(30, 2.0), {});
  EXPECT_DOUBLE_EQ(found.ratio, 1.5);
  EXPECT_DOUBLE_EQ(found.low, 1.5);
  EXPECT_DOUBLE_EQ(found.high, 1.5);
}

TEST(Bootstrap, takes_the_middle_of_an_even_number_of_values) {
  EXPECT_DOUBLE_EQ(ratio_of_medians(Series{1, 2, 4, 9}, Series{2, 2}, {}).ratio, 1.5);
  EXPECT_DOUBLE_EQ(ratio_of_medians(Series{1, 2, 4}, Series{2, 2}, {}).ratio, 1);
}

TEST(Bootstrap, refuses_what_is_no_series_of_times) {
  const Series good(10, 1.0);
  for (const Series& bad :
       {Series{}, Series{1}, Series{1, 0}, Series{1, -2}, Series{1, NAN}, Series{1, INFINITY}}) {
    EXPECT_THROW(ratio_of_medians(bad, good, {}), oddrank::Error);
    EXPECT_THROW(ratio_of_medians(good, bad, {}), oddrank::Error);
  }
  EXPECT_THROW(ratio_of_medians(good, good, {1.0, 1000, 1}), oddrank::Error);
  EXPECT_THROW(ratio_of_medians(good, good, {0.99, 10, 1}), oddrank::Error);
}

}  // namespace
