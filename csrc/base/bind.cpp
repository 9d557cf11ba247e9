// Bindings of csrc/base: translate types, release the GIL; no logic.
#include "base/bind.hpp"

#include <pybind11/stl.h>

#include <vector>

#include "base/bootstrap.hpp"
#include "base/repeats.hpp"

namespace oddrank {
namespace py = pybind11;

void bind_base(py::module_& m) {
  m.def(
      "ratio_of_medians",
      [](const std::vector<double>& over, const std::vector<double>& under, double confidence,
         std::size_t replicates, std::uint64_t seed) {
        RatioInterval found;
        {
          const py::gil_scoped_release release;
          found = ratio_of_medians(over, under, {confidence, replicates, seed});
        }
        return py::make_tuple(found.ratio, found.low, found.high, found.block_over,
                              found.block_under);
      },
      py::arg("over"), py::arg("under"), py::arg("confidence"), py::arg("replicates"),
      py::arg("seed"),
      "(ratio, low, high, block_over, block_under): the ratio of the medians of two series in the "
      "order of time, its interval by a block bootstrap, and the lengths of the blocks.");
  m.def(
      "sum_up_repeats",
      [](const std::vector<std::vector<double>>& peers, bool rates) {
        RepeatsSummary found;
        {
          const py::gil_scoped_release release;
          found = sum_up(peers, rates);
        }
        return py::make_tuple(found.medians, found.scatters, found.noise, found.deviations);
      },
      py::arg("peers"), py::arg("rates"),
      "(medians, scatters, noise, deviations): of each peer the median of its repeats' logarithms "
      "and their standard deviation, 0 of one repeat; of all the standard deviation of one repeat, "
      "None where nobody has two, and how many deviations tell it.");
}

}  // namespace oddrank
