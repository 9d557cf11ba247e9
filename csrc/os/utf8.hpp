// Reads texts of CPython, which C++ holds as UTF-8. The other way: to_python.hpp.
#pragma once

#include <Python.h>

#include <cstddef>
#include <string_view>

namespace oddrank {

// Returns the UTF-8 of a str, valid while the str lives. Its data is null if `object` is null or no
// str, or has no UTF-8 (a lone surrogate). Leaves no Python error.
inline std::string_view utf8_of(PyObject* object) noexcept {
  Py_ssize_t size = 0;
  const char* bytes = object == nullptr || PyUnicode_Check(object) == 0
                          ? nullptr
                          : PyUnicode_AsUTF8AndSize(object, &size);
  if (bytes == nullptr) {
    PyErr_Clear();
    return {};
  }
  return {bytes, static_cast<std::size_t>(size)};
}

}  // namespace oddrank
