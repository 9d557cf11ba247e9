// Names of threads and tools for the record. Runs no Python code.
#pragma once

#include <Python.h>

#include <string>

namespace oddrank::trace {

// Returns the thread's name in threading, else its native name (autograd: pt_autograd_0); empty if
// it is not registered yet or has no name. Leaves no Python error.
std::string thread_name(const PyThreadState* state) noexcept;

// Names the tool that took a hook: module.function or the type's name of a callable given to
// sys.settrace(); the name given to sys.monitoring; "nobody" for None, which only removes a hook.
std::string tool_name(PyObject* tool) noexcept;

}  // namespace oddrank::trace
