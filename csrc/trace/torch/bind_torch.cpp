// Bindings of the collective recorder. Includes no torch header, and so never torch's pybind11.
#include <pybind11/pybind11.h>

#include "os/cpython.hpp"
#include "trace/torch/collectives.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

void start(const py::object& capsule) {
  const auto* sink = static_cast<const trace::CollectiveSink*>(
      PyCapsule_GetPointer(capsule.ptr(), trace::CollectiveSink::kCapsule));
  if (sink == nullptr) throw py::error_already_set();
  const WithoutGil unlocked;
  trace::start_collectives(*sink);
}

}  // namespace

void bind_collectives(py::module_& m) {
  m.def("start_collectives", &start, py::arg("sink"),
        "Tells `sink` (of _core.trace_collective_sink) of every collective from now on.");
  m.def("stop_collectives", &trace::stop_collectives, py::call_guard<WithoutGil>(),
        "Lets collectives pass unrecorded; the open ones are still told to end.");
}

}  // namespace oddrank
