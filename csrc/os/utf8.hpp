// Texts between CPython and C++, which holds them as UTF-8.
#pragma once

#include <pybind11/pybind11.h>

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

// Decodes UTF-8. Each invalid byte becomes U+FFFD: a broken name must not lose a report.
inline pybind11::str text(std::string_view bytes) {
  PyObject* made =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (made == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::str>(made);
}

}  // namespace oddrank
