// Bindings of csrc/selftest that need CUDA: translate types, release the GIL; no logic.
#include "selftest/bind_cuda.hpp"

#include <pybind11/stl.h>

#include "selftest/bind.hpp"
#include "selftest/memory.hpp"

namespace oddrank {
namespace py = pybind11;

void bind_selftest_cuda(py::module_& m) {
  m.def(
      "verify_memory",
      [](int device, std::size_t bytes, std::uint64_t seed, double seconds,
         std::optional<std::size_t> damage) {
        selftest::MemoryResult result;
        {
          py::gil_scoped_release unlocked;
          result = selftest::verify_memory(device, bytes, seed, Deadline::after_seconds(seconds),
                                           damage);
        }
        return memory_dict(result);
      },
      py::arg("device"), py::arg("bytes"), py::arg("seed"), py::kw_only(),
      py::arg("seconds") = 30.0, py::arg("damage") = py::none(),
      "Writes a keyed pattern and its complement through the GPU's memory and reads them back "
      "there.");
  m.def(
      "time_copies",
      [](int device, std::size_t bytes, int repeats, double seconds) {
        return selftest::time_copies(device, bytes, repeats, Deadline::after_seconds(seconds));
      },
      py::arg("device"), py::arg("bytes"), py::arg("repeats"), py::kw_only(),
      py::arg("seconds") = 30.0, py::call_guard<py::gil_scoped_release>(),
      "Seconds of each copy of `bytes` within the GPU's memory.");
}

}  // namespace oddrank
