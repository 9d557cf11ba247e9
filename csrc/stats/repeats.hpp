// Summarizes repeated measurements of peers: the median of each, and how much repeats vary.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace oddrank {

// All values are of logarithms, so that a deviation is a share of the measured value. Slower is
// larger.
struct RepeatsSummary {
  std::vector<double> medians;   // per peer
  std::vector<double> scatters;  // standard deviation of one repeat per peer; 0 if it has only one
  // Pooled standard deviation of one repeat; empty if no peer has two.
  std::optional<double> noise;
  std::size_t deviations = 0;  // number of deviations behind `noise`
};

// Turns the median absolute deviation of a normal distribution into its standard deviation.
inline constexpr double kMad = 1.4826;

// `peers`: at least one repeat each, all times or all rates. Robust: a few odd repeats change
// nothing. Throws Error for a value that is not above 0 and finite.
RepeatsSummary sum_up(const std::vector<std::vector<double>>& peers, bool rates);

}  // namespace oddrank
