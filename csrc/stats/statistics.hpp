// The ratio of the medians of two series of measured times or rates, with its confidence interval.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace oddrank {

struct BootstrapOptions {
  double confidence = 0.99;  // the two-sided interval's
  std::size_t replicates = 4000;
  std::uint64_t seed = 1;  // the same seed gives the same interval
};

struct RatioInterval {
  double ratio = 0;             // median(over) / median(under)
  double low = 0;               // bounds of the ratio
  double high = 0;              //
  std::size_t block_over = 0;   // block length of each series: about the number of iterations that
  std::size_t block_under = 0;  // one disturbance lasts
};

// Returns the ratio of the medians of two series, each in the order of time, with its interval.
// Throws Error if a series has fewer than two values, or one that is not above 0 and finite.
//
// A block bootstrap, for the time of an iteration depends on the one before it:
// circular blocks (Politis and Romano 1992), percentile interval. The block
// length follows Politis and White (2004), corrected by Patton, Politis and White (2009), for
// the signs of x - median: their mean makes the median's error, and outliers do not count by their
// size. Too short blocks make the interval too narrow: they are 1.5 times as long, and at least the
// cube root of the series. With few blocks the interval is widened as Student's t is wider than the
// normal distribution. benchmarks/bench/compare_verdicts.py measures the effect.
RatioInterval ratio_of_medians(std::span<const double> over, std::span<const double> under,
                               const BootstrapOptions& options);

// Returns the length of the blocks that ratio_of_medians draws from a series.
std::size_t block_length(std::span<const double> series);

}  // namespace oddrank
