// The start of a module that pybind11 makes.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

#include "os/cpython.hpp"
#include "os/error.hpp"
#include "os/to_python.hpp"

namespace oddrank {

// Maps oddrank::Error to oddrank.OddrankError and sets `build_info`.
inline void begin_module(pybind11::module_& m) {
  pybind11::register_local_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(std::move(error));
    } catch (const Error& e) {
      set_oddrank_error(e);
    }
  });
  m.attr("build_info") =
      dict_of({"compiler"_k = ODDRANK_COMPILER, "flags"_k = ODDRANK_COMPILER_FLAGS,
               "cmake"_k = ODDRANK_CMAKE_VERSION, "version"_k = ODDRANK_VERSION});
}

}  // namespace oddrank
