// How sure a ratio of two medians is: a block bootstrap, since one iteration's time depends on the
// one before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace oddrank {

struct BootstrapOptions {
  double confidence = 0.99;  // of the two-sided interval
  std::size_t replicates = 4000;
  std::uint64_t seed = 1;  // the same seed, the same interval
};

struct RatioInterval {
  double ratio = 0;             // median(over) / median(under)
  double low = 0;               // bounds of the ratio
  double high = 0;              //
  std::size_t block_over = 0;   // length of the blocks that each side was drawn in: about how many
  std::size_t block_under = 0;  // iterations one disturbance lasts
};

// The ratio of the medians of two series, each in the order of time, with its interval.
// Throws Error where a series has fewer than two values or one that is not above 0 and finite.
//
// Circular block bootstrap (Politis and Romano 1992), percentile interval; the length of the blocks
// after Politis and White (2004), corrected by Patton, Politis and White (2009), for the signs of
// x - median, whose mean is what the median's error is made of: outliers do not count by their
// size. Blocks that are too short make an interval too narrow, so that they are 1.5 times as long
// as that and at least the cube root of the series; with few blocks the interval is widened as
// Student's t is wider than a normal distribution. What that gains: benchmarks/bench/
// compare_verdicts.py.
RatioInterval ratio_of_medians(std::span<const double> over, std::span<const double> under,
                               const BootstrapOptions& options);

// The length of the blocks that ratio_of_medians draws from a series.
std::size_t block_length(std::span<const double> series);

}  // namespace oddrank
