// Declares the bindings of csrc/selftest that run everywhere.
#pragma once

#include <pybind11/pybind11.h>

#include "selftest/pattern.hpp"

namespace oddrank {
void bind_selftest(pybind11::module_& m);

// What both memory tests return in Python.
inline pybind11::dict memory_dict(const selftest::MemoryResult& result) {
  pybind11::dict mismatches;
  mismatches["count"] = result.mismatches.count;
  mismatches["index"] = result.mismatches.index;
  mismatches["expected"] = result.mismatches.expected;
  mismatches["got"] = result.mismatches.got;
  pybind11::dict d;
  d["bytes"] = result.bytes;
  d["mismatches"] = mismatches;
  d["write_seconds"] = result.write_seconds;
  d["read_seconds"] = result.read_seconds;
  return d;
}
}  // namespace oddrank
