// Bindings of what NVML tells of a GPU: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include "selftest/bind.hpp"
#include "selftest/gpu_health.hpp"

namespace oddrank {
namespace py = pybind11;

namespace {

py::dict to_dict(const selftest::GpuHealth& health) {
  py::dict d;
  d["gpu"] = health.name;
  d["slice"] = health.slice;
  d["lost"] = health.lost;
  d["readings"] = health.readings.numbers;
  d["unreadable"] = health.readings.unreadable;
  d["processes"] = health.processes;
  d["mps_clients"] = health.mps_clients;
  return d;
}

py::dict to_dict(const selftest::GpuCounters& counters) {
  py::dict links;
  for (const auto& [link, readings] : counters.links) links[py::int_(link)] = readings.numbers;
  py::dict d;
  d["lost"] = counters.lost;
  d["gpu"] = counters.gpu.numbers;
  d["unreadable"] = counters.gpu.unreadable;
  d["links"] = links;
  return d;
}

}  // namespace

void bind_gpu_health(py::module_& m) {
  m.def(
      "gpu_health",
      [](const std::string& uuid, const std::string& library) {
        selftest::GpuHealth health;
        {
          py::gil_scoped_release unlocked;
          health = selftest::gpu_health(uuid, library);
        }
        return to_dict(health);
      },
      py::arg("uuid"), py::arg("library") = "libnvidia-ml.so.1",
      "What NVML tells of a GPU's health and settings; OddrankError where it can't be asked.");
  m.def(
      "gpu_counters",
      [](const std::string& uuid, const std::string& library) {
        selftest::GpuCounters counters;
        {
          py::gil_scoped_release unlocked;
          counters = selftest::gpu_counters(uuid, library);
        }
        return to_dict(counters);
      },
      py::arg("uuid"), py::arg("library") = "libnvidia-ml.so.1",
      "A GPU's error counters and those of its NVLinks; OddrankError where NVML can't be asked.");
}

}  // namespace oddrank
