// Excursions and shifts of a series. All deviations are upwards: callers negate what may not fall.
#include "metrics/excursion.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "stats/statistics.hpp"

namespace oddrank::metrics {
namespace {

constexpr std::size_t kHistory = 512;
constexpr std::size_t kLate = 128;
constexpr std::size_t kLeast = 40;   // values before anything is judged
constexpr std::size_t kEvery = 8;    // values between two refreshes of level and scale
constexpr std::size_t kAdopt = 256;  // values after which a new level is the level
constexpr double kBeyond = 4;        // the line, in scales
constexpr std::size_t kBlocks = 32;
constexpr std::size_t kLeastBlocks = 16;
constexpr double kBlockBeyond = 8;  // in scales of the blocks' medians
constexpr double kBlockMost = 1.5;  // times the largest deviation of a block before

}  // namespace

double median_of(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Excursion::Event Excursion::add(double value, double iteration, std::size_t rows, double evidence) {
  if (window_.empty()) level_ = value;
  const double deviation = value - level_;
  const double innovation = deviation - memory_ * last_;
  last_ = deviation;
  const bool ready = deviations_.size() >= kLeast;
  if (++all_ > kHistory) {
    all_ /= 2;
    runs_ /= 2;
    run_rows_ /= 2;
  }
  const bool beyond = ready && deviation > std::max(kBeyond * scale_, rule_.floor);
  if (!away_ && !beyond) {
    push_bounded(innovations_, innovation, kHistory);
    accept(value, deviation);
    return Event::none;
  }
  if (!away_) {
    end(false);
    away_ = true;
    first_ = iteration;
  }
  held_.push_back(value);
  if (held_.size() >= kAdopt) {  // this is the level now
    window_.assign(held_.end() - static_cast<std::ptrdiff_t>(std::min(held_.size(), rule_.window)),
                   held_.end());
    away_ = fired_ = false;
    fresh_ = kEvery;
    refresh();
    last_ = 0;
    return Event::none;
  }
  if (!beyond) {
    if (back_++ == 0) back_at_ = iteration;
    if (back_ < rule_.back) return Event::none;
    const bool fired = fired_;
    if (!fired) {  // the series does such things: it is less rare from now on
      for (const double step : steps_) push_bounded(innovations_, step, kHistory);
      runs_ += 1;
      run_rows_ += static_cast<double>(rows_);
    }
    const std::size_t kept = static_cast<std::size_t>(back_);
    const std::vector<double> values(held_.end() - static_cast<std::ptrdiff_t>(kept), held_.end());
    away_ = fired_ = false;
    for (const double one : values) accept(one, one - level_);
    return fired ? Event::recovered : Event::none;
  }
  back_ = 0;
  ++rows_;
  evidence_ += std::max(0.0, -std::log10(rarity(innovation) * (rows_ > 1 ? company() : 1)));
  beyond_.push_back(deviation);
  steps_.push_back(innovation);
  if (deviation > peak_) {
    peak_ = deviation;
    peak_at_ = iteration;
  }
  if (fired_ || evidence_ < evidence) return Event::none;
  if (rows_ < (rows > 0 ? rows : rule_.rows)) return Event::none;
  std::vector<double> ordered(beyond_);
  std::sort(ordered.rbegin(), ordered.rend());
  if (ordered[std::min(rule_.effect_rank, ordered.size()) - 1] < rule_.effect) return Event::none;
  fired_ = true;
  return Event::fired;
}

void Excursion::reset() {
  window_.clear();
  deviations_.clear();
  innovations_.clear();
  fresh_ = 0;
  level_ = scale_ = memory_ = largest_ = last_ = 0;
  runs_ = run_rows_ = all_ = 0;
  away_ = false;
  end(false);
}

double Excursion::typical() const {
  if (beyond_.empty()) return 0;
  std::vector<double> values(beyond_);
  return median_of(values);
}

// Forgets the last excursion.
void Excursion::end(bool keep) {
  fired_ = keep && fired_;
  rows_ = 0;
  evidence_ = peak_ = 0;
  back_ = 0;
  first_ = peak_at_ = back_at_ = kUnknown;
  held_.clear();
  beyond_.clear();
  steps_.clear();
}

void Excursion::accept(double value, double deviation) {
  push_bounded(window_, value, rule_.window);
  push_bounded(deviations_, deviation, kHistory);
  ++fresh_;
  refresh();
}

// Takes level, scale and memory anew from time to time: they cost more than all else.
void Excursion::refresh() {
  if (fresh_ < kEvery && deviations_.size() > 2 * kEvery) return;
  stale_ += fresh_;
  fresh_ = 0;
  std::vector<double> values(window_.begin(), window_.end());
  level_ = median_of(values);
  if (deviations_.empty() || stale_ < deviations_.size() / 8) return;
  stale_ = 0;
  values.assign(deviations_.begin(), deviations_.end());
  for (double& one : values) one = std::abs(one);
  // The mean is for values of few digits: more than half of their deviations may be 0.
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  scale_ = std::max(kMad * median_of(values), mean / 2);
  // Of late, without their median: else the lag behind a trend would pass for memory. Clipped, so
  // that a single outlier makes none.
  const std::size_t late = std::min(deviations_.size(), kLate);
  values.assign(deviations_.end() - static_cast<std::ptrdiff_t>(late), deviations_.end());
  std::vector<double> copy(values);
  const double middle = median_of(copy);
  const double most = 3 * scale_;
  double product = 0;
  double square = 0;
  double before = 0;
  for (const double one : values) {
    const double clipped = std::clamp(one - middle, -most, most);
    product += clipped * before;
    square += clipped * clipped;
    before = clipped;
  }
  memory_ = square > 0 ? std::clamp(product / square, 0.0, 0.95) : 0;
  largest_ = innovations_.empty() ? 0 : *std::max_element(innovations_.begin(), innovations_.end());
}

// Returns how often an innovation is as large as this one.
double Excursion::rarity(double innovation) const {
  const auto count = static_cast<double>(innovations_.size());
  const double largest = std::max({largest_, 3 * scale_, rule_.floor / 2});
  if (innovation > largest) return std::pow(largest / innovation, rule_.tail) / (count + 1);
  const auto as_large = std::count_if(innovations_.begin(), innovations_.end(),
                                      [&](double one) { return one >= innovation; });
  return (static_cast<double>(as_large) + 1) / (count + 1);
}

// Returns how much likelier a row beyond the line is behind another one: in a series whose outliers
// come in company the second one is no news.
double Excursion::company() const {
  if (runs_ == 0) return 1;
  return std::max(1.0, (run_rows_ - runs_) / run_rows_ * all_ / run_rows_);
}

bool BlockShift::add(double value, double iteration) {
  if (block_.empty()) began_ = iteration;
  block_.push_back(value);
  if (block_.size() < width_) return false;
  const double median = median_of(block_);
  block_.clear();
  bool fires = false;
  if (history_.size() >= kLeastBlocks) {
    std::vector<double> values(history_.begin(), history_.end());
    const double level = median_of(values);
    double most = 0;
    for (double& one : values) {
      one = std::abs(one - level);
      most = std::max(most, one);
    }
    const double line =
        std::max({effect_, kBlockBeyond * kMad * median_of(values), kBlockMost * most});
    if (median - level > line) {
      if (std::isnan(suspect_)) {
        suspect_ = median;
        first_ = began_;
        return false;
      }
      level_ = level;
      shift_ = std::min(suspect_, median) - level;
      fires = true;
    }
  }
  if (!std::isnan(suspect_)) push_bounded(history_, suspect_, kBlocks);
  suspect_ = kUnknown;
  push_bounded(history_, median, kBlocks);
  if (fires) history_.clear();
  return fires;
}

void BlockShift::reset() {
  block_.clear();
  history_.clear();
  suspect_ = kUnknown;
}

}  // namespace oddrank::metrics
