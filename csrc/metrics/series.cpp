// The rule for series. Its figures are at the top; benchmarks/metrics/detection.py measures them.
#include "metrics/series.hpp"

#include <cmath>
#include <utility>

namespace oddrank::metrics {
namespace {

constexpr std::size_t kFew = 3;
constexpr std::size_t kMore = 8;         // where something else slows down a few rows
constexpr std::size_t kLevelRows = 32;   // that make the level before a row
constexpr std::size_t kNoiseRows = 128;  // that make the noise
constexpr std::size_t kHeld = 128;       // rows after which a new level is the level
constexpr std::size_t kLevels = 64;      // windows of a size that are remembered
constexpr std::size_t kSteps = 16;       // differences of windows that make their noise
constexpr std::size_t kMostBack = 64;
constexpr double kLine = 4.5;     // times the noise: each of 3 rows
constexpr double kBeyond = 9;     // times the noise: the median of 3 rows
constexpr double kShift = 7;      // times the noise of windows: the median of one
constexpr double kAlone = 18;     // times the noise: a single row
constexpr double kAgain = 1.5;    // times the largest excess that came back
constexpr double kMean = 0.6;     // a mean of deviations as a median
constexpr double kForget = 0.98;  // factor for excesses that came back, each time

// Returns the noise of deviations: their median, or more if few of them are large.
double noise_of(const std::vector<double>& sizes) {
  double sum = 0;
  for (const double size : sizes) sum += size;
  return std::max(median_of(sizes), kMean * sum / static_cast<double>(sizes.size()));
}

}  // namespace

// Moves values without branches, which noise misleads: std::nth_element takes twice as long.
double median_of(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::size_t first = 0, last = values.size();
  const auto move = [&](std::size_t to, auto is_wanted) {
    for (std::size_t at = to; at < last; ++at) {
      std::swap(values[at], values[to]);
      to += is_wanted(values[to]) ? 1 : 0;
    }
    return to;
  };
  while (true) {
    const double pivot = values[(first + last) / 2];
    const std::size_t low = move(first, [pivot](double value) { return value < pivot; });
    const std::size_t high = move(low, [pivot](double value) { return value == pivot; });
    if (low == high || (low <= middle && middle < high)) return pivot;  // the first: it is NaN
    (middle < low ? last : first) = middle < low ? low : high;
  }
}

void Series::reset() {
  std::size_t size = 4;
  for (Window& window : windows_) {
    window = {};
    window.size = size *= 4;
  }
  rows_.clear();
  held_.clear();
  deviations_.clear();
  last_.clear();
  linear_ = open_ = adopted_ = false;
  level_ = noise_ = earlier_ = returned_ = excess_ = 0;
  seen_ = 0;
}

void Series::rewind(double iteration) {
  const auto late = [iteration](const Value& row) { return row.iteration >= iteration; };
  while (!rows_.empty() && late(rows_.back())) rows_.pop_back();
  for (Window& window : windows_) {
    window.rows.clear();
    while (!window.levels.empty() && window.levels.back().last >= iteration) {
      window.levels.pop_back();
    }
    window.excess = 0;
    window.was_odd = false;
  }
  last_.clear();
  held_.clear();
  open_ = adopted_ = false;
  if (!rows_.empty()) refresh();
}

double Series::scaled(double value) const {
  return limits_.sign * (linear_ ? value / unit_ : std::log(value));
}

double Series::unscaled(double value) const {
  return linear_ ? limits_.sign * value * unit_ : std::exp(limits_.sign * value);
}

// Returns the median of the last values.
double Series::median(const std::deque<Value>& values, std::size_t last) const {
  std::vector<double> copy(std::min(last, values.size()));
  std::transform(values.end() - static_cast<std::ptrdiff_t>(copy.size()), values.end(),
                 copy.begin(), [](const Value& row) { return row.value; });
  return median_of(std::move(copy));
}

Series::Event Series::add(double value, double iteration, double first, bool briefly) {
  if (value <= 0 && !linear_) {  // no logarithms from now on
    std::deque<Value> known = rows_;
    std::vector<double> sizes{std::abs(value)};
    for (Value& row : known) sizes.push_back(row.value = unscaled(row.value));
    reset();
    linear_ = true;
    unit_ = std::max(median_of(sizes), 1e-12);
    for (const Value& row : known) learn({scaled(row.value), row.iteration, row.first});
  }
  const Value row{scaled(value), iteration, first};
  if (open_) {
    const Event event = go_on(row);
    if (!adopted_) return event;
    if (event == Event::over || rows_.size() < kLeast) {
      learn(row);
      return event;
    }
  }
  if (rows_.size() >= kLeast) {
    ++judged_;
    if (judge_rows(row, briefly ? kFew : kMore)) return Event::began;
  }
  learn(row);
  for (Window& window : windows_) {
    if (window.rows.size() == window.size && judge_window(window)) return Event::began;
  }
  return open_ ? Event::grew : Event::none;
}

// Compares the last rows with the level before them.
bool Series::judge_rows(const Value& row, std::size_t few) {
  push_bounded(last_, row, kMore);
  const double newest = row.value - level_;
  // The first of 8 rows have become noise by the last.
  const double noise = few == kMore && earlier_ > 0 ? std::min(noise_, earlier_) : noise_;
  const std::size_t least_rows = std::min(few, last_.size());
  std::array<double, kMore> excesses{};
  for (std::size_t i = 0; i < least_rows; ++i) {
    excesses[i] = last_[last_.size() - 1 - i].value - level_;
  }
  std::sort(excesses.begin(), excesses.begin() + static_cast<std::ptrdiff_t>(least_rows));
  const bool full = least_rows == few && excesses[0] > kLine * noise;
  const double excess = full ? excesses[few / 2] : 0;
  const double least = linear_ ? 0 : limits_.few;
  const double doubt = rows_.size() < kLevelRows ? 2 : 1;  // few rows show little of a level
  const double limit = doubt * std::max({least, kBeyond * noise, kAgain * returned_});
  const bool alone = limits_.one > 0 && !linear_ &&
                     newest > std::max({limits_.one, kAlone * noise_, 2 * returned_});
  if (excess > limit || alone) {
    const std::deque<Value> rows(
        std::find_if(last_.end() - static_cast<std::ptrdiff_t>(least_rows), last_.end(),
                     [&](const Value& each) { return each.value - level_ > limit / 2; }),
        last_.end());
    const Place first{rows.front().first, static_cast<double>(seen_ + 1 - rows.size())};
    begin("spike", first, level_, limit, kFew);
    change_.count = 0;
    for (const Value& each : rows) go_on(each);
    return true;
  }
  if (excess > 3 * noise_) {
    excess_ = std::max(excess_, excess);
  } else if (excess_ > 0) {
    returned_ = std::max(returned_ * kForget, excess_);
    excess_ = 0;
  }
  return false;
}

// Compares a window that is full with those before it.
bool Series::judge_window(Window& window) {
  std::vector<double> values;
  for (const Value& row : window.rows) values.push_back(row.value);
  const double median = median_of(values);
  const Place behind{window.rows.back().iteration, static_cast<double>(seen_)};
  const std::vector<Value> rows = std::exchange(window.rows, {});
  std::deque<Level>& levels = window.levels;
  double best = median;
  Place settled = behind;
  bool odd = false;
  if (levels.size() >= 2) {
    best = levels.back().best;
    std::vector<double> late;
    for (auto level = levels.rbegin(); level != levels.rend() && late.size() < 4; ++level) {
      late.push_back(level->median);
    }
    const double usual = median_of(late);
    std::vector<double> steps;  // from one window to the next
    for (std::size_t i = levels.size() - 1; i > 0 && steps.size() < kSteps; --i) {
      steps.push_back(std::abs(levels[i].median - levels[i - 1].median));
    }
    const double noise = noise_of(steps);
    const double most = std::max(kShift * noise, kAgain * window.returned);
    const double limit = std::max(limits_.drift, most);
    const bool drift = !open_ && median - best > limit;
    // Noise makes the best level a low one: a rise mostly since the last windows is a step.
    const bool step = median - usual > std::max(limits_.step, most) ||
                      (drift && 2 * (median - usual) > median - best);
    odd = step || drift;
    if (median - best > 2 * noise) settled = levels.back().settled;
    if (odd && window.was_odd && (!open_ || adopted_)) {
      const double level = step ? usual : best;
      begin(step ? "step" : "drift", step ? window.odd : settled, level,
            step ? std::max(limits_.step, most) : limit, window.size);
      change_.value = unscaled(median);
      window.was_odd = false;
      return true;
    }
    const auto began = std::find_if(rows.begin(), rows.end(), [&](const Value& row) {
      return row.value > (median + (step ? usual : best)) / 2;
    });
    if (odd) window.odd = {began->first, behind.rows - static_cast<double>(rows.end() - began)};
    if (median - best > 2 * noise) {
      window.excess = std::max(window.excess, median - best);
    } else {
      window.returned = std::max(window.returned, std::exchange(window.excess, 0));
    }
  }
  window.was_odd = odd;
  push_bounded(levels, {behind.iteration, median, std::min(best, median), settled}, kLevels);
  return false;
}

void Series::begin(std::string_view shape, Place first, double level, double limit,
                   std::size_t width) {
  change_ = {};
  change_.shape = shape;
  change_.first = change_.at = first.iteration;
  change_.level = unscaled(level);
  change_.known = first.rows;
  change_.count = static_cast<double>(seen_) - first.rows;
  open_ = true;
  adopted_ = false;
  from_ = level;
  back_ = limit / 2;
  worst_ = 0;
  width_ = std::min(width, kMostBack);
  held_.clear();
  last_.clear();
}

// Takes a row of a change that is not over.
Series::Event Series::go_on(const Value& row) {
  push_bounded(held_, row, kHeld);
  ++change_.count;
  const double excess = row.value - from_;
  if (excess > worst_) {
    worst_ = excess;
    change_.at = row.iteration;
  }
  const bool is_spike = change_.shape == "spike" && !adopted_;
  if (is_spike) {
    change_.value = unscaled(limits_.sign > 0 ? from_ + worst_ : median(held_, kHeld));
  }
  if (held_.size() >= width_ && (!adopted_ || seen_ % width_ == 0)) {
    if (!is_spike) change_.value = unscaled(median(held_, kHeld));
    if (median(held_, width_) - from_ < back_) {
      auto back = std::find_if(held_.end() - static_cast<std::ptrdiff_t>(width_), held_.end(),
                               [&](const Value& each) { return each.value - from_ < back_; });
      change_.until = back->first;
      change_.count -= static_cast<double>(held_.end() - back);
      open_ = false;
      if (!std::exchange(adopted_, false)) {
        for (; back != held_.end(); ++back) learn(*back);
      }
      return Event::over;
    }
  }
  if (adopted_ || held_.size() < kHeld) return Event::grew;
  // It is the level now.
  const Series known = *this;
  reset();
  linear_ = known.linear_;
  open_ = adopted_ = true;
  for (const Value& each : known.held_) learn(each);
  held_ = known.held_;
  return Event::grew;
}

void Series::learn(const Value& row) {
  ++seen_;
  if (!rows_.empty()) push_bounded(deviations_, row.value - level_, kNoiseRows);
  push_bounded(rows_, row, kLevelRows);
  for (Window& window : windows_) window.rows.push_back(row);
  if (seen_ < 64 ? seen_ % 8 == 1 : seen_ % 64 == 0) refresh();
  if (seen_ % 8 == 0) level_ = median(rows_, kLevelRows);
}

// Takes level and noise anew.
void Series::refresh() {
  level_ = median(rows_, kLevelRows);
  std::vector<double> values(deviations_.begin(), deviations_.end());
  if (values.size() < 8) {
    values.clear();
    for (const Value& row : rows_) values.push_back(row.value);
  }
  const double middle = median_of(values);
  for (double& value : values) value = std::abs(value - middle);
  earlier_ = std::exchange(noise_, noise_of(values));
}

}  // namespace oddrank::metrics
