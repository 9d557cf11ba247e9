// Names of Python's things for the record. Nothing here runs Python code or leaves an error behind.
#pragma once

#include <Python.h>

#include <string>

namespace oddrank::trace {

// As threading knows it, else the native thread's own name (autograd's: pt_autograd_0); empty where
// the thread is not registered yet, or is nameless.
std::string thread_name(const PyThreadState* state) noexcept;

// What has taken a hook: a callable given to sys.settrace(), as module.function or its type's name;
// a name given to sys.monitoring; "nobody" for None, which only takes hooks away.
std::string tool_name(PyObject* tool) noexcept;

}  // namespace oddrank::trace
