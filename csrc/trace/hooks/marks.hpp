// oddrank.step, mark and section as plain CPython callables: pybind11 costs more than their work.
#pragma once

#include <Python.h>

namespace oddrank::trace {

// Return new references; nullptr with a Python error. The callables do nothing while not armed.
PyObject* make_step();
PyObject* make_mark();
PyObject* section_type();

}  // namespace oddrank::trace
