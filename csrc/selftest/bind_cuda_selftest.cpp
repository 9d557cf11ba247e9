// Bindings of csrc/selftest that need CUDA: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include "os/cpython.hpp"
#include "os/error.hpp"
#include "selftest/bind_selftest.hpp"
#include "selftest/gpu_tests.hpp"

namespace oddrank {
namespace {

// code: the architecture that the code was compiled for.
py::dict by_unit(const std::uint64_t* hashes, int code) {
  py::dict d;
  for (std::size_t i = 0; i < selftest::kGpuUnitCount; ++i) {
    if (selftest::has_unit(i, code)) d[selftest::kGpuUnits[i]] = hashes[i];
  }
  return d;
}

py::dict to_dict(const selftest::GpuPrints& prints) {
  const py::list seen = list_of(prints.prints, [&](const selftest::BlockPrint& print) {
    return tuple_of({print.multiprocessor, print.repeat, by_unit(print.hashes, prints.code)});
  });
  std::uint64_t golden[selftest::kGpuUnitCount];
  for (std::size_t i = 0; i < selftest::kGpuUnitCount; ++i) golden[i] = selftest::gpu_golden(i);
  return dict_of({"code"_k = prints.code, "multiprocessors"_k = prints.multiprocessors,
                  "computed"_k = prints.computed, "golden"_k = by_unit(golden, prints.code),
                  "seen"_k = seen});
}

// Returns the index of `name` in kGpuUnits, -1 for "".
int unit_of(const std::string& name) {
  for (std::size_t i = 0; i < selftest::kGpuUnitCount; ++i) {
    if (name == selftest::kGpuUnits[i]) return static_cast<int>(i);
  }
  if (!name.empty()) throw Error("a fingerprint has no unit " + name);
  return -1;
}

}  // namespace

void bind_cuda_selftest(py::module_& m) {
  m.def(
      "verify_memory",
      [](int device, std::size_t bytes, std::uint64_t seed, Deadline seconds, Deadline enough,
         bool thorough, std::optional<std::size_t> damage, std::size_t damage_pass) {
        return to_dict(without_gil([&] {
          return selftest::verify_memory(device, bytes, seed, enough, seconds, passes_of(thorough),
                                         damage_of(damage, damage_pass));
        }));
      },
      "device"_a, "bytes"_a, "seed"_a, py::kw_only(), "seconds"_a = 30.0, "enough"_a = 30.0,
      "thorough"_a = false, "damage"_a = py::none(), "damage_pass"_a = 0);
  m.def(
      "time_copies",
      [](int device, std::size_t bytes, int repeats, Deadline seconds) {
        return selftest::time_copies(device, bytes, repeats, seconds);
      },
      "device"_a, "bytes"_a, "repeats"_a, py::kw_only(), "seconds"_a = 30.0,
      py::call_guard<WithoutGil>());
  m.def(
      "time_device_memory",
      [](int device, std::size_t bytes, int repeats, Deadline seconds) {
        return to_dict(without_gil(
            [&] { return selftest::time_device_memory(device, bytes, repeats, seconds); }));
      },
      "device"_a, "bytes"_a, "repeats"_a, py::kw_only(), "seconds"_a = 30.0);
  m.def(
      "time_transfers",
      [](int device, std::size_t bytes, int repeats, Deadline seconds) {
        const auto times =
            without_gil([&] { return selftest::time_transfers(device, bytes, repeats, seconds); });
        return dict_of({"bytes"_k = times.bytes, "to_device"_k = list_of(times.to_device),
                        "to_host"_k = list_of(times.to_host)});
      },
      "device"_a, "bytes"_a, "repeats"_a, py::kw_only(), "seconds"_a = 30.0);
  m.def(
      "gpu_fingerprint",
      [](int device, Deadline enough, Deadline seconds, const std::string& spoil) {
        const int spoilt = unit_of(spoil);
        return to_dict(without_gil(
            [&] { return selftest::gpu_fingerprint(device, enough, seconds, spoilt); }));
      },
      "device"_a, "enough"_a, py::kw_only(), "seconds"_a = 30.0, "spoil"_a = "");
}

}  // namespace oddrank
