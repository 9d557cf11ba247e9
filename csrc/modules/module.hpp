// The facts of its build, which every module has.
#pragma once

#include <Python.h>

namespace oddrank {

// Returns a new dict: compiler, flags, CMake, version. Null with a Python error.
inline PyObject* make_build_info() noexcept {
  return Py_BuildValue("{ssssssss}", "compiler", ODDRANK_COMPILER, "flags", ODDRANK_COMPILER_FLAGS,
                       "cmake", ODDRANK_CMAKE_VERSION, "version", ODDRANK_VERSION);
}

}  // namespace oddrank
