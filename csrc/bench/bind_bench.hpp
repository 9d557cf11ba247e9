// Shared by the bindings of csrc/bench.
#pragma once

#include <pybind11/pybind11.h>

#include "bench/verify/verify.hpp"

namespace oddrank {
// Returns the Python result of both checks.
inline pybind11::tuple mismatch_tuple(const bench::Mismatch& m) {
  return pybind11::make_tuple(m.wrong, m.index, m.expected, m.got);
}
}  // namespace oddrank
