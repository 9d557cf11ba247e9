// Texts of a record for Python.
#pragma once

#include <pybind11/pybind11.h>

#include <string_view>

namespace oddrank::trace {

// Whoever wrote the record: bytes that are no UTF-8 become U+FFFD.
inline pybind11::str text(std::string_view bytes) {
  PyObject* made =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<pybind11::ssize_t>(bytes.size()), "replace");
  if (made == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(made);
}

}  // namespace oddrank::trace
