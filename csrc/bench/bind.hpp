// Declares the bindings of csrc/bench that run everywhere.
#pragma once

#include <pybind11/pybind11.h>

#include "bench/verify/segment.hpp"

namespace oddrank {
void bind_bench(pybind11::module_& m);

// What both checks return in Python.
inline pybind11::tuple mismatch_tuple(const bench::Mismatch& m) {
  return pybind11::make_tuple(m.wrong, m.index, m.expected, m.got);
}
}  // namespace oddrank
