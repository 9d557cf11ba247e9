// Shared by the bindings of csrc/selftest.
#pragma once

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

inline pybind11::dict to_dict(const selftest::MemoryTimes& times) {
  return dict_of({"bytes"_k = times.bytes, "read"_k = list_of(times.read),
                  "write"_k = list_of(times.write), "copy"_k = list_of(times.copy)});
}
inline pybind11::dict to_dict(const selftest::MemoryResult& result) {
  const pybind11::dict mismatches =
      dict_of({"count"_k = result.mismatches.count, "bits"_k = result.mismatches.bits,
               "pass"_k = result.mismatches.pass, "index"_k = result.mismatches.index,
               "expected"_k = result.mismatches.expected, "got"_k = result.mismatches.got});
  return dict_of({"bytes"_k = result.bytes, "passes"_k = result.passes, "mismatches"_k = mismatches,
                  "write_seconds"_k = result.write_seconds,
                  "read_seconds"_k = result.read_seconds});
}
}  // namespace oddrank
