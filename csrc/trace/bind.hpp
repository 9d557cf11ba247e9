// Declares the bindings of csrc/trace.
#pragma once

#include <pybind11/pybind11.h>

namespace oddrank {
void bind_trace(pybind11::module_& m);       // the recorder
void bind_trace_read(pybind11::module_& m);  // the reader
void bind_trace_export(pybind11::module_& m);
void bind_collective_records(pybind11::module_& m);
void bind_trace_text(pybind11::module_& m);  // what NicerTrace prints
}  // namespace oddrank
