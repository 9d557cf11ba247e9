// What some peers have measured again and again: the middle of each, and how much repeats vary.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace oddrank {

// Standard deviations are of the logarithms: shares of what was measured.
struct RepeatsSummary {
  std::vector<double> medians;   // of each peer's logarithms, what takes longer is larger
  std::vector<double> scatters;  // of one repeat of each peer; 0 where it has only one
  // Of one repeat of all peers, and how many deviations tell it; none: nobody was measured twice.
  std::optional<double> noise;
  std::size_t deviations = 0;
};

// Median absolute deviation -> standard deviation, of a normal distribution.
inline constexpr double kMad = 1.4826;

// `peers`: the repeats of each, at least one; times, or rates. Robust: a few odd repeats change
// nothing. Throws Error for a value that is not above 0 and finite.
RepeatsSummary sum_up(const std::vector<std::vector<double>>& peers, bool rates);

}  // namespace oddrank
