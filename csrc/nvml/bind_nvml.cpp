// Bindings of csrc/nvml: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include "nvml/gpu.hpp"
#include "os/cpython.hpp"
#include "os/to_python.hpp"

namespace oddrank {
namespace {

template <class T>
py::dict by_name(const std::map<std::string, T>& values) {
  py::dict made;
  for (const auto& [name, value] : values) add(made, {{name.c_str(), value}});
  return made;
}

py::object list_or_none(const std::optional<std::vector<unsigned>>& ids) {
  return ids ? list_of(*ids) : py::object(py::none());
}

py::dict to_dict(const nvml::GpuHealth& health) {
  return dict_of({"gpu"_k = health.name, "slice"_k = health.slice, "lost"_k = health.lost,
                  "readings"_k = by_name(health.readings.numbers),
                  "unreadable"_k = by_name(health.readings.unreadable),
                  "processes"_k = list_or_none(health.processes),
                  "mps_clients"_k = list_or_none(health.mps_clients)});
}

py::dict to_dict(const nvml::GpuCounters& counters) {
  py::dict links;
  for (const auto& [link, readings] : counters.links)
    links[py::int_(link)] = by_name(readings.numbers);
  return dict_of({"lost"_k = counters.lost, "gpu"_k = by_name(counters.gpu.numbers),
                  "unreadable"_k = by_name(counters.gpu.unreadable), "links"_k = links});
}

}  // namespace

void bind_nvml(py::module_& m) {
  m.def(
      "gpu_health",
      [](const std::string& uuid, const std::string& library) {
        return to_dict(without_gil([&] { return nvml::gpu_health(uuid, library); }));
      },
      "uuid"_a, "library"_a = "libnvidia-ml.so.1",
      "Returns a GPU's health and settings from NVML. Raises OddrankError if NVML does not "
      "answer.");
  m.def(
      "gpu_counters",
      [](const std::string& uuid, const std::string& library) {
        return to_dict(without_gil([&] { return nvml::gpu_counters(uuid, library); }));
      },
      "uuid"_a, "library"_a = "libnvidia-ml.so.1",
      "Returns the error counters of a GPU and its NVLinks. Raises OddrankError if NVML does not "
      "answer.");
  m.def(
      "gpu_links",
      [](const std::string& uuid, const std::string& library) {
        const auto links = without_gil([&] { return nvml::gpu_links(uuid, library); });
        return dict_of({"nvlinks"_k = links.nvlinks, "nvlink_MBps"_k = links.nvlink_MBps,
                        "pcie"_k = links.pcie, "pcie_width"_k = links.pcie_width,
                        "fabric"_k = links.fabric});
      },
      "uuid"_a, "library"_a = "libnvidia-ml.so.1",
      "Returns the links of the GPU `GPU-...`. Raises OddrankError if NVML does not answer.");
}

}  // namespace oddrank
