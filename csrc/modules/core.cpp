// oddrank._core: the module that is always built. A list of its parts and nothing else.
#include <pybind11/pybind11.h>

#include "modules/begin_module.hpp"

// Each is defined in its subject's bind_*.cpp; bind_printing in printing/cpython/printflock.cpp,
// and bind_trace_marks in trace/hooks/marks.cpp.
namespace oddrank {
void bind_bench(pybind11::module_& m);
void bind_control(pybind11::module_& m);
void bind_logs(pybind11::module_& m);
void bind_metrics(pybind11::module_& m);
void bind_printing(pybind11::module_& m);
void bind_replicas(pybind11::module_& m);
void bind_run(pybind11::module_& m);
void bind_selftest(pybind11::module_& m);
void bind_stats(pybind11::module_& m);
void bind_trace(pybind11::module_& m);
int bind_trace_marks(PyObject* module);  // in plain CPython: -1 with a Python error
void bind_trace_nicer(pybind11::module_& m);
void bind_trace_read(pybind11::module_& m);
void bind_triage(pybind11::module_& m);
}  // namespace oddrank

PYBIND11_MODULE(_core, m) {
  m.doc() =
      "oddrank's native core: printing, the recorder, guards, probes of hosts, digests, "
      "statistics, checks of values, the wait graph, and readers of what jobs leave. Use the "
      "functions of `oddrank` instead.";
  oddrank::begin_module(m);
  oddrank::bind_bench(m);
  oddrank::bind_control(m);
  oddrank::bind_logs(m);
  oddrank::bind_metrics(m);
  oddrank::bind_printing(m);
  oddrank::bind_replicas(m);
  oddrank::bind_run(m);
  oddrank::bind_selftest(m);
  oddrank::bind_stats(m);
  oddrank::bind_trace(m);
  if (oddrank::bind_trace_marks(m.ptr()) != 0) throw pybind11::error_already_set();
  oddrank::bind_trace_nicer(m);
  oddrank::bind_trace_read(m);
  oddrank::bind_triage(m);
}
