// Bindings of csrc/stats: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include "os/cpython.hpp"
#include "os/to_python.hpp"
#include "stats/statistics.hpp"

namespace oddrank {

void bind_stats(py::module_& m) {
  m.def(
      "ratio_of_medians",
      [](const std::vector<double>& over, const std::vector<double>& under, double confidence,
         std::size_t replicates, std::uint64_t seed) {
        const auto found = without_gil([&] {
          return ratio_of_medians(over, under, {confidence, replicates, seed});
        });
        return tuple_of({found.ratio, found.low, found.high, found.block_over, found.block_under});
      },
      "over"_a, "under"_a, "confidence"_a, "replicates"_a, "seed"_a,
      "Returns (ratio, low, high, block_over, block_under): the ratio of the medians of two time "
      "series, its confidence interval by a block bootstrap, and the lengths of the blocks.");
  m.def(
      "sum_up_repeats",
      [](const std::vector<std::vector<double>>& peers, bool rates) {
        const auto found = without_gil([&] { return sum_up(peers, rates); });
        return tuple_of(
            {list_of(found.medians), list_of(found.scatters), found.noise, found.deviations});
      },
      "peers"_a, "rates"_a,
      "Returns (medians, scatters, noise, deviations) of the repeats' logarithms: each peer's "
      "median and "
      "standard deviation (0 if it has one repeat), the pooled standard deviation of one repeat "
      "(None if no peer has two) and the number of deviations behind it.");
}

}  // namespace oddrank
