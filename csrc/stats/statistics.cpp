// Draws blocks of two series many times.
#include "stats/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "os/error.hpp"
#include "os/mix.hpp"

namespace oddrank {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014): the same numbers with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  // Returns a number below `limit`, which is below 2^32.
  std::size_t below(std::size_t limit) noexcept {
    return static_cast<std::size_t>((mix_bits(state_ += kMixStep) >> 32U) * limit >> 32U);
  }

 private:
  std::uint64_t state_;
};

// A series sorted once: a drawn sample is counted by rank, and the counts give its median.
class Series {
 public:
  explicit Series(std::span<const double> values)
      : sorted_(values.begin(), values.end()),
        places_(values.size()),
        counts_(values.size()),
        block_(block_length(values)) {
    std::vector<std::uint32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return values[a] < values[b]; });
    for (std::uint32_t place = 0; place < order.size(); ++place) places_[order[place]] = place;
    std::sort(sorted_.begin(), sorted_.end());
  }

  std::size_t block() const noexcept { return block_; }
  std::size_t blocks() const noexcept { return sorted_.size() / block_; }

  double median() const noexcept {
    const std::size_t size = sorted_.size();
    return (sorted_[(size - 1) / 2] + sorted_[size / 2]) / 2;
  }

  // Returns the median of as many values, drawn in blocks that wrap around the end.
  double drawn_median(Random& random) noexcept {
    const std::size_t size = sorted_.size();
    std::fill(counts_.begin(), counts_.end(), 0U);
    for (std::size_t drawn = 0; drawn < size;) {
      std::size_t at = random.below(size);
      const std::size_t end = std::min(size, drawn + block_);
      for (; drawn < end; ++drawn) {
        ++counts_[places_[at]];
        if (++at == size) at = 0;
      }
    }
    std::size_t place = 0;
    std::size_t seen = counts_[0];
    while (seen <= (size - 1) / 2) seen += counts_[++place];
    const double low = sorted_[place];
    while (seen <= size / 2) seen += counts_[++place];
    return (low + sorted_[place]) / 2;
  }

 private:
  std::vector<double> sorted_;
  std::vector<std::uint32_t> places_;  // each value's index in sorted_
  std::vector<std::uint32_t> counts_;
  std::size_t block_;
};

void check(std::span<const double> series, const char* which) {
  if (series.size() < 2 || series.size() > 0xffffffffU) {
    throw Error("ratio of medians: " + std::string(which) + " has " +
                std::to_string(series.size()) + " values, at least 2 are needed");
  }
  for (const double value : series) {
    if (!(value > 0) || !std::isfinite(value)) {
      throw Error("ratio of medians: " + std::string(which) +
                  " has a value that is not above 0 and finite");
    }
  }
}

double median_of(std::span<const double> series) {
  std::vector<double> values(series.begin(), series.end());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the sign of x - median for each value, less the mean of the signs.
std::vector<double> centered_signs(std::span<const double> series) {
  const double median = median_of(series);
  std::vector<double> signs(series.size());
  std::transform(series.begin(), series.end(), signs.begin(), [median](double value) {
    return static_cast<double>(value > median) - static_cast<double>(value < median);
  });
  const double mean =
      std::accumulate(signs.begin(), signs.end(), 0.0) / static_cast<double>(signs.size());
  for (double& sign : signs) sign -= mean;
  return signs;
}

double autocovariance(const std::vector<double>& signs, std::size_t lag) {
  double sum = 0;
  for (std::size_t i = lag; i < signs.size(); ++i) sum += signs[i] * signs[i - lag];
  return sum / static_cast<double>(signs.size());
}

// Returns how much wider Student's t with `degrees` of freedom is than the normal distribution at
// its quantile z, by the expansion of Abramowitz and Stegun 26.7.5.
double widening(double z, double degrees) {
  const double square = z * z;
  return 1 + (square + 1) / (4 * degrees) +
         ((5 * square + 16) * square + 3) / (96 * degrees * degrees);
}

// Returns the normal quantile of a two-sided interval, by bisection.
double two_sided_quantile(double confidence) {
  double low = 0;
  double high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erf(middle / std::sqrt(2.0)) < confidence ? low : high) = middle;
  }
  return low;
}

// Returns the optimal block length for the circular bootstrap (Politis and White); 0 if no value
// depends on an earlier one.
double optimal_length(std::span<const double> series) {
  const std::size_t size = series.size();
  const std::vector<double> signs = centered_signs(series);
  const auto n = static_cast<double>(size);
  const double variance = autocovariance(signs, 0);
  if (variance <= 0) return 0;
  const auto few = static_cast<std::size_t>(std::max(5.0, std::sqrt(std::log10(n))));
  const auto farthest = std::min(size - 1, static_cast<std::size_t>(std::ceil(std::sqrt(n))) + few);
  const double noise = 2 * std::sqrt(std::log10(n) / n);
  std::vector<double> covariances{variance};
  std::size_t last = 0;  // the last lag that matters; `few` quiet ones in a row come after it
  for (std::size_t lag = 1; lag <= farthest && lag - last <= few; ++lag) {
    covariances.push_back(autocovariance(signs, lag));
    if (std::abs(covariances.back() / variance) >= noise) last = lag;
  }
  if (last == 0) return 0;
  const std::size_t window = std::min(2 * last, size - 1);
  double weighted = 0;
  double spectrum = variance;
  for (std::size_t lag = 1; lag <= window; ++lag) {
    const double at = static_cast<double>(lag) / static_cast<double>(window);
    const double weight = at <= 0.5 ? 1 : 2 * (1 - at);
    const double covariance =
        lag < covariances.size() ? covariances[lag] : autocovariance(signs, lag);
    weighted += 2 * weight * static_cast<double>(lag) * covariance;
    spectrum += 2 * weight * covariance;
  }
  return std::cbrt(1.5 * weighted * weighted / (spectrum * spectrum) * n);
}

}  // namespace

std::size_t block_length(std::span<const double> series) {
  const auto n = static_cast<double>(series.size());
  if (n < 8) return 1;
  const double most = std::min(3 * std::sqrt(n), n / 3);
  const double best = 1.5 * optimal_length(series);
  if (!(best < most)) return static_cast<std::size_t>(most);  // NaN too
  return static_cast<std::size_t>(std::lround(std::max(std::cbrt(n), best)));
}

RatioInterval ratio_of_medians(std::span<const double> over, std::span<const double> under,
                               const BootstrapOptions& options) {
  check(over, "the first series");
  check(under, "the second series");
  if (!(options.confidence > 0 && options.confidence < 1) || options.replicates < 100) {
    throw Error("ratio of medians: a confidence between 0 and 1 and 100 replicates are needed");
  }
  Series first(over);
  Series second(under);
  Random random(options.seed);
  std::vector<double> ratios(options.replicates);
  for (double& ratio : ratios) {
    const double above = first.drawn_median(random);
    ratio = above / second.drawn_median(random);
  }
  std::sort(ratios.begin(), ratios.end());
  const auto cut = static_cast<std::size_t>((1 - options.confidence) / 2 *
                                            static_cast<double>(options.replicates));
  const auto blocks = static_cast<double>(std::min(first.blocks(), second.blocks()));
  const double wider = widening(two_sided_quantile(options.confidence), std::max(1.0, blocks - 1));
  const double ratio = first.median() / second.median();
  const auto widened = [&](double bound) { return ratio * std::pow(bound / ratio, wider); };
  return {ratio, widened(std::min(ratio, ratios[cut])),
          widened(std::max(ratio, ratios[options.replicates - 1 - cut])), first.block(),
          second.block()};
}

}  // namespace oddrank
