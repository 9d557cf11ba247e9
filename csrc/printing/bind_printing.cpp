// Bindings of csrc/printing: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include "os/clock.hpp"
#include "os/to_python.hpp"
#include "printing/cpython/printflock.hpp"
#include "printing/lock.hpp"

namespace py = pybind11;

namespace oddrank {
namespace printing {

State& state() noexcept {
  static State the_state;
  return the_state;
}

}  // namespace printing

void bind_printing(py::module_& m) {
  m.def(
      "printing_open",
      [](const std::vector<std::string>& folders, double timeout_s) {
        printing::State& state = printing::state();
        const printing::LockFile file = printing::open_lock_file(folders);
        state.table = file.table;
        state.timeout_ms = ns_of_seconds(timeout_s) / kMs;
        return tuple_of({file.path, file.refused});
      },
      py::arg("folders"), py::arg("timeout_s"),
      "Opens the lock file in the first folder that can be used. Returns (path, why earlier "
      "folders "
      "were refused). The path is empty if only this process and its forked children share a "
      "lock.");
  m.def(
      "printing_prefix", [](std::string prefix) { printing::state().prefix = std::move(prefix); },
      py::arg("prefix"), "Sets the text before each line ('' for none).");
  m.attr("printflock") = py::reinterpret_steal<py::object>(printing::make_printflock());
}

}  // namespace oddrank
