// Bindings of csrc/selftest that run everywhere: translate types, release the GIL; no logic.
#include "selftest/bind_selftest.hpp"

#include <pybind11/stl.h>

#include "os/cpython.hpp"
#include "selftest/folder_probe.hpp"

namespace oddrank {
namespace {

py::dict folder_dict(const selftest::FolderResult& result) {
  py::dict seconds;
  for (std::size_t i = 0; i < selftest::kFolderSteps.size(); ++i) {
    seconds[selftest::kFolderSteps[i]] = result.seconds[i];
  }
  const bool through = result.stopped_at == selftest::kFolderSteps.size();
  return dict_of({"seconds"_k = seconds,
                  "stopped_at"_k = through ? "" : selftest::kFolderSteps[result.stopped_at],
                  "hangs"_k = result.hangs, "error"_k = result.error, "left"_k = result.left});
}

py::dict by_unit(const std::uint64_t* hashes) {
  py::dict d;
  for (std::size_t i = 0; i < selftest::kUnitCount; ++i) d[selftest::kUnits[i]] = hashes[i];
  return d;
}

}  // namespace

void bind_selftest(py::module_& m) {
  m.def(
      "verify_host_memory",
      [](std::size_t bytes, std::uint64_t seed, bool thorough, std::optional<std::size_t> damage,
         std::size_t damage_pass) {
        return to_dict(without_gil([&] {
          return selftest::verify_host_memory(bytes, seed, passes_of(thorough),
                                              damage_of(damage, damage_pass));
        }));
      },
      "bytes"_a, "seed"_a, py::kw_only(), "thorough"_a = false, "damage"_a = py::none(),
      "damage_pass"_a = 0);
  m.def(
      "probe_folders",
      [](const std::vector<std::string>& folders, const std::string& name, double seconds,
         int repeats) {
        const auto results =
            without_gil([&] { return selftest::probe_folders(folders, name, seconds, repeats); });
        return list_of(results, folder_dict);
      },
      "folders"_a, "name"_a, "seconds"_a, "repeats"_a, py::pos_only());
  m.def("time_host_memory", [](std::size_t bytes, int repeats, int slices) {
    return to_dict(without_gil([&] { return selftest::time_host_memory(bytes, repeats, slices); }));
  });
  m.def("time_host_compute", [](double seconds, int repeats) {
    const auto times = without_gil([&] { return selftest::time_host_compute(seconds, repeats); });
    return dict_of({"operations"_k = times.operations, "seconds"_k = list_of(times.seconds)});
  });
  m.def("host_fingerprint", [] {
    std::array<std::uint64_t, selftest::kUnitCount> hashes{};
    {
      const WithoutGil unlocked;
      for (std::size_t i = 0; i < selftest::kUnitCount; ++i) {
        hashes[i] = selftest::host_fingerprint(static_cast<selftest::Unit>(i));
      }
    }
    return by_unit(hashes.data());
  });
  m.def("golden_fingerprint", [] { return by_unit(selftest::kGolden); });
}

}  // namespace oddrank
