// Bindings of csrc/selftest that run everywhere: translate types, release the GIL; no logic.
#include "selftest/bind.hpp"

#include <pybind11/stl.h>

#include "selftest/host_memory.hpp"

namespace oddrank {
namespace py = pybind11;

void bind_selftest(py::module_& m) {
  m.def(
      "verify_host_memory",
      [](std::size_t bytes, std::uint64_t seed, std::optional<std::size_t> damage) {
        selftest::MemoryResult result;
        {
          py::gil_scoped_release unlocked;
          result = selftest::verify_host_memory(bytes, seed, damage);
        }
        return memory_dict(result);
      },
      py::arg("bytes"), py::arg("seed"), py::kw_only(), py::arg("damage") = py::none(),
      "Writes a keyed pattern and its complement through fresh host memory and reads them back.");
}

}  // namespace oddrank
