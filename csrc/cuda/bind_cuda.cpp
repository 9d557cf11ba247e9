// Bindings of csrc/cuda: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include "cuda/runtime.hpp"
#include "os/cpython.hpp"
#include "os/to_python.hpp"

namespace oddrank {
namespace {

py::tuple version_tuple(int version) { return tuple_of({version / 1000, version % 1000 / 10}); }

py::dict to_dict(const cuda::Device& device) {
  const auto [major, minor] = device.compute_capability;
  return dict_of({"index"_k = device.index, "name"_k = device.name, "uuid"_k = device.uuid,
                  "pci_bus_id"_k = device.pci_bus, "memory_bytes"_k = device.memory_bytes,
                  "compute_capability"_k = tuple_of({major, minor}),
                  "multiprocessors"_k = device.multiprocessors});
}

}  // namespace

void bind_cuda(py::module_& m) {
  m.def("set_rank", &cuda::set_rank);
  m.def("driver_version", []() -> py::object {
    const auto version = cuda::driver_version();
    return version ? py::object(version_tuple(*version)) : py::none();
  });
  m.def("runtime_version", [] { return version_tuple(cuda::runtime_version()); });
  m.def("device_count", &cuda::device_count, py::call_guard<WithoutGil>());
  m.def("memory_info", &cuda::memory_info, py::call_guard<WithoutGil>());
  m.def("devices", [] {
    const auto devices = without_gil([&] { return cuda::devices(); });
    return list_of(devices, to_dict);
  });
}

}  // namespace oddrank
