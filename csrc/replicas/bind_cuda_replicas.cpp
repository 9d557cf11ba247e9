// Bindings of csrc/replicas to the GPU: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include <tuple>

#include "os/cpython.hpp"
#include "os/to_python.hpp"
#include "replicas/gpu_digest.hpp"

namespace oddrank {

void bind_cuda_replicas(py::module_& m) {
  m.def(
      "gpu_digest",
      [](int device, std::uintptr_t stream,
         const std::vector<std::tuple<std::uintptr_t, std::uint64_t, std::uint64_t>>& ranges,
         std::uint64_t block, std::uintptr_t rows, std::size_t room) {
        std::vector<replicas::Range> all;
        for (const auto& [address, begin, end] : ranges) all.push_back({address, begin, end});
        const WithoutGil unlocked;
        return replicas::gpu_digest(device, reinterpret_cast<cudaStream_t>(stream), all, block,
                                    rows, room);
      },
      "device"_a, "stream"_a, "ranges"_a, "block"_a, "rows"_a, "room"_a,
      "Puts kernels on a stream that write 16 bytes for each block of each range (address, begin, "
      "end) to device memory `rows`, which has `room` rows. block: 0 for whole ranges. Returns the "
      "number of rows; with rows=0 that is all. Waits for nothing; may be captured into a graph.");
}

}  // namespace oddrank
