// Bindings of csrc/replicas to the GPU: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include <utility>

#include "os/cpython.hpp"
#include "os/to_python.hpp"
#include "replicas/gpu_digest.hpp"

namespace oddrank {

void bind_cuda_replicas(py::module_& m) {
  m.def("gpu_digest", [](int device, std::uintptr_t stream,
                         const std::vector<std::pair<std::uint64_t, std::uint64_t>>& tensors,
                         std::uintptr_t rows) {
    std::vector<replicas::GpuTensor> all;
    for (const auto& [address, bytes] : tensors) all.push_back({address, bytes});
    const WithoutGil unlocked;
    replicas::gpu_digest(device, reinterpret_cast<cudaStream_t>(stream), all, rows);
  });
}

}  // namespace oddrank
