// Bindings of csrc/stats: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include "os/cpython.hpp"
#include "os/to_python.hpp"
#include "stats/statistics.hpp"

namespace oddrank {

void bind_stats(py::module_& m) {
  m.def("ratio_of_medians", [](const std::vector<double>& over, const std::vector<double>& under,
                               double confidence, std::size_t replicates, std::uint64_t seed) {
    const auto found = without_gil([&] {
      return ratio_of_medians(over, under, {confidence, replicates, seed});
    });
    return tuple_of({found.ratio, found.low, found.high, found.block_over, found.block_under});
  });
}

}  // namespace oddrank
