// oddrank._core: the module that is always built. A list of its parts and nothing else.
#include <pybind11/pybind11.h>

#include "base/bind.hpp"
#include "bench/bind.hpp"
#include "control/bind.hpp"
#include "modules/module.hpp"
#include "printing/bind.hpp"
#include "selftest/bind.hpp"
#include "trace/bind.hpp"

PYBIND11_MODULE(_core, m) {
  m.doc() = "oddrank's native core: printing and control. Use the functions of `oddrank` instead.";
  oddrank::begin_module(m);
  oddrank::bind_base(m);
  oddrank::bind_bench(m);
  oddrank::bind_control(m);
  oddrank::bind_printing(m);
  oddrank::bind_selftest(m);
  oddrank::bind_gpu_health(m);
  oddrank::bind_trace(m);
  oddrank::bind_trace_read(m);
  oddrank::bind_trace_export(m);
  oddrank::bind_collective_records(m);
  oddrank::bind_trace_text(m);
}
