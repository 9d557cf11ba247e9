// The last rows of a training. Each figure says how many of them it takes.
#include "metrics/recent.hpp"

#include <algorithm>
#include <vector>

#include "metrics/series.hpp"

namespace oddrank::metrics {
namespace {

constexpr std::size_t kLast = 16;     // rows that say what is now
constexpr double kLeastClock = 60;    // seconds of rows by the clock, which may show whole seconds
constexpr std::size_t kKept = 256;    // rows whose pauses count
constexpr std::size_t kRepeated = 2;  // pauses that are expected to come again

}  // namespace

Speed speed_of(const Row& row, double iterations, double gap) {
  if (row[kTflops] > 0) return {"TFLOP/s", row[kTflops], true};
  if (row[kTokensPerSecond] > 0) return {"tokens/s", row[kTokensPerSecond], false};
  if (row[kSamplesPerSecond] > 0) return {"samples/s", row[kSamplesPerSecond], false};
  if (row[kStepSeconds] > 0) {
    if (row[kBatch] > 0) return {"samples/s", row[kBatch] / row[kStepSeconds], false};
    return {"iterations/s", 1 / row[kStepSeconds], false};
  }
  if (gap > 0 && iterations > 0) return {"iterations/s by the clock", iterations / gap, false};
  return {};
}

void Recent::add(const Row& row, double iterations, double gap, Pause pause) {
  // Long rows one after another are no pauses: the training has become slow.
  const bool is_long = pause.seconds > 0;
  if (is_long && was_long_) pause = {};
  was_long_ = is_long;
  push_bounded(rows_, {iterations, row[kStepSeconds], gap, pause, speed_of(row, iterations, gap)},
               kKept);
}

void Recent::reset() {
  rows_.clear();
  was_long_ = false;
}

double Recent::pace() const {
  std::vector<double> stated;
  for (auto row = rows_.rbegin(); row != rows_.rend() && stated.size() < kLast; ++row) {
    if (row->stated > 0) stated.push_back(row->stated);
  }
  return stated.empty() ? pace_by_clock() : median_of(stated);
}

double Recent::pace_by_clock() const {
  double iterations = 0;
  double seconds = 0;
  std::size_t count = 0;
  for (auto row = rows_.rbegin(); row != rows_.rend(); ++row) {
    if (!(row->gap >= 0) || !(row->iterations > 0) || row->pause.seconds > 0) continue;
    iterations += row->iterations;
    seconds += row->gap;
    if (++count >= kLast && seconds >= kLeastClock) break;
  }
  return seconds > 0 ? seconds / iterations : kUnknown;
}

double Recent::pauses() const {
  double iterations = 0;
  double seconds = 0;
  std::size_t count = 0;
  for (const Entry& row : rows_) {
    if (row.iterations > 0) iterations += row.iterations;
    if (row.pause.is_stall || !(row.pause.seconds > 0)) continue;
    seconds += row.pause.seconds;
    ++count;
  }
  return count < kRepeated ? 0 : seconds / iterations;
}

Speed Recent::speed(std::string_view unit) const {
  Speed made;
  std::vector<double> values;
  for (auto row = rows_.rbegin(); row != rows_.rend() && values.size() < kLast; ++row) {
    if (unit.empty()) unit = row->speed.unit;
    if (unit.empty() || row->speed.unit != unit) continue;
    made = row->speed;
    values.push_back(row->speed.value);
  }
  made.unit = unit;
  if (values.empty()) return made;
  made.value = unit.ends_with("clock") ? 1 / pace_by_clock() : median_of(values);
  return made;
}

}  // namespace oddrank::metrics
