// The start of every module: the mapping of our exceptions and the facts of its build.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

#include "os/error.hpp"
#include "os/utf8.hpp"

namespace oddrank {

// Maps oddrank::Error to oddrank.OddrankError and sets `build_info`: compiler, flags, CMake,
// version.
inline void begin_module(pybind11::module_& m) {
  namespace py = pybind11;
  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(std::move(error));
    } catch (const Error& e) {
      py::set_error(py::module_::import("oddrank.errors").attr("OddrankError"), text(e.what()));
    }
  });
  py::dict info;
  info["compiler"] = ODDRANK_COMPILER;
  info["flags"] = ODDRANK_COMPILER_FLAGS;
  info["cmake"] = ODDRANK_CMAKE_VERSION;
  info["version"] = ODDRANK_VERSION;
  m.attr("build_info") = info;
}

}  // namespace oddrank
