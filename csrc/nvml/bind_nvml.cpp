// Bindings of csrc/nvml: translate types, release the GIL; no logic.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "nvml/gpu.hpp"
#include "os/cpython.hpp"

namespace oddrank {
namespace py = pybind11;

namespace {

py::dict to_dict(const nvml::GpuHealth& health) {
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

py::dict to_dict(const nvml::GpuCounters& counters) {
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

void bind_nvml(py::module_& m) {
  m.def(
      "gpu_health",
      [](const std::string& uuid, const std::string& library) {
        nvml::GpuHealth health;
        {
          const WithoutGil unlocked;
          health = nvml::gpu_health(uuid, library);
        }
        return to_dict(health);
      },
      py::arg("uuid"), py::arg("library") = "libnvidia-ml.so.1",
      "Returns a GPU's health and settings from NVML. Raises OddrankError if NVML does not "
      "answer.");
  m.def(
      "gpu_counters",
      [](const std::string& uuid, const std::string& library) {
        nvml::GpuCounters counters;
        {
          const WithoutGil unlocked;
          counters = nvml::gpu_counters(uuid, library);
        }
        return to_dict(counters);
      },
      py::arg("uuid"), py::arg("library") = "libnvidia-ml.so.1",
      "Returns the error counters of a GPU and its NVLinks. Raises OddrankError if NVML does not "
      "answer.");
  m.def(
      "gpu_links",
      [](const std::string& uuid, const std::string& library) {
        nvml::GpuLinks links;
        {
          const WithoutGil unlocked;
          links = nvml::gpu_links(uuid, library);
        }
        py::dict d;
        d["nvlinks"] = links.nvlinks;
        d["nvlink_MBps"] = links.nvlink_MBps;
        d["pcie"] = links.pcie;
        d["pcie_width"] = links.pcie_width;
        d["fabric"] = links.fabric;
        return d;
      },
      py::arg("uuid"), py::arg("library") = "libnvidia-ml.so.1",
      "Returns the links of the GPU `GPU-...`. Raises OddrankError if NVML does not answer.");
}

}  // namespace oddrank
