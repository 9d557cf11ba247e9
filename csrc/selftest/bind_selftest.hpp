// Shared by the bindings of csrc/selftest.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

#include "os/to_python.hpp"
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
  pybind11::dict mismatches = dict_of({{"count", result.mismatches.count},
                                       {"bits", result.mismatches.bits},
                                       {"pass", result.mismatches.pass},
                                       {"index", result.mismatches.index},
                                       {"expected", result.mismatches.expected},
                                       {"got", result.mismatches.got}});
  return dict_of({{"bytes", result.bytes},
                  {"passes", result.passes},
                  {"mismatches", mismatches},
                  {"write_seconds", result.write_seconds},
                  {"read_seconds", result.read_seconds}});
}
}  // namespace oddrank
