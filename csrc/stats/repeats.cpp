// Computes medians and median absolute deviations of repeated measurements.
#include "stats/repeats.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "os/error.hpp"

namespace oddrank {
namespace {

using Values = std::vector<double>;

// `values` must not be empty. Reorders it.
double median(Values& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

Values logarithms(const Values& values, double sign) {
  if (values.empty()) throw Error("a peer has no values: it cannot be compared");
  Values logs;
  logs.reserve(values.size());
  for (const double value : values) {
    if (!(value > 0) || std::isinf(value)) {
      throw Error(std::to_string(value) +
                  " cannot be compared: times and rates are above 0 and finite");
    }
    logs.push_back(sign * std::log(value));
  }
  return logs;
}

// Returns the distances from the median without the smallest one, which is the median's own or its
// mirror's, scaled for the degree of freedom that the median takes.
Values deviations(const Values& logs, double median) {
  Values found;
  found.reserve(logs.size());
  for (const double log : logs) found.push_back(std::abs(log - median));
  found.erase(std::min_element(found.begin(), found.end()));
  const double left = static_cast<double>(found.size());
  for (double& deviation : found) deviation *= std::sqrt((left + 1) / left);
  return found;
}

}  // namespace

RepeatsSummary sum_up(const std::vector<Values>& peers, bool rates) {
  RepeatsSummary summary;
  Values all;
  for (const Values& values : peers) {
    Values logs = logarithms(values, rates ? -1.0 : 1.0);
    const double middle = median(logs);
    Values own = deviations(logs, middle);
    all.insert(all.end(), own.begin(), own.end());
    summary.medians.push_back(middle);
    summary.scatters.push_back(own.empty() ? 0.0 : kMad * median(own));
  }
  summary.deviations = all.size();
  if (!all.empty()) summary.noise = kMad * median(all);
  return summary;
}

}  // namespace oddrank
