// The start of a module that pybind11 makes.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

#include "modules/module.hpp"
#include "os/cpython.hpp"
#include "os/error.hpp"

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
  PyObject* info = make_build_info();
  if (info == nullptr) throw pybind11::error_already_set();
  m.attr("build_info") = pybind11::reinterpret_steal<pybind11::dict>(info);
}

}  // namespace oddrank
