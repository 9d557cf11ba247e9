// Shared by the bindings of csrc/selftest.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

#include "selftest/host_tests.hpp"

namespace oddrank {
// Translate the arguments `thorough`, `damage` and `damage_pass` of both memory tests.
inline std::size_t passes_of(bool thorough) {
  return thorough ? selftest::kAllPasses : selftest::kQuickPasses;
}
inline std::optional<selftest::Damage> damage_of(std::optional<std::size_t> index,
                                                 std::size_t pass) {
  return index ? std::optional<selftest::Damage>({*index, pass}) : std::nullopt;
}

// Returns the Python result of both memory tests.
inline pybind11::dict memory_dict(const selftest::MemoryResult& result) {
  pybind11::dict mismatches;
  mismatches["count"] = result.mismatches.count;
  mismatches["bits"] = result.mismatches.bits;
  mismatches["pass"] = result.mismatches.pass;
  mismatches["index"] = result.mismatches.index;
  mismatches["expected"] = result.mismatches.expected;
  mismatches["got"] = result.mismatches.got;
  pybind11::dict d;
  d["bytes"] = result.bytes;
  d["passes"] = result.passes;
  d["mismatches"] = mismatches;
  d["write_seconds"] = result.write_seconds;
  d["read_seconds"] = result.read_seconds;
  return d;
}
}  // namespace oddrank
