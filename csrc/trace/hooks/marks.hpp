// oddrank.step, mark and section: plain CPython callables, since a binding's layer would cost more
// than what they do.
#pragma once

#include <Python.h>

namespace oddrank::trace {

// New references; nullptr with a Python error. They may be called before the recorder is armed and
// after: then they do nothing.
PyObject* make_step();
PyObject* make_mark();
PyObject* section_type();

}  // namespace oddrank::trace
