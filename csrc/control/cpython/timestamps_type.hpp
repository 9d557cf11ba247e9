// The Python class Timestamps, with plain CPython methods: pybind11 costs more than their work.
#pragma once

#include <Python.h>

#include "control/page.hpp"

namespace oddrank::control {

// Adds the class to a module. Returns -1 with a Python error, else 0.
int bind_timestamps(PyObject* module) noexcept;

// Returns a new object; null with a Python error.
PyObject* make_timestamps(Timestamps timestamps) noexcept;

}  // namespace oddrank::control
