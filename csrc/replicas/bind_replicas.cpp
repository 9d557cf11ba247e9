// Bindings of csrc/replicas that run everywhere: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include <tuple>

#include "os/cpython.hpp"
#include "os/to_python.hpp"
#include "replicas/digest.hpp"

namespace oddrank {

void bind_replicas(py::module_& m) {
  m.attr("REPLICAS_CHUNK") = replicas::kChunkBytes;
  m.def(
      "digest_blocks",
      [](const std::vector<std::tuple<std::uintptr_t, std::uint64_t, std::uint64_t>>& ranges,
         std::uint64_t block, int threads) {
        std::vector<replicas::Range> all;
        all.reserve(ranges.size());
        for (const auto& [address, begin, end] : ranges) all.push_back({address, begin, end});
        const auto rows = without_gil([&] { return replicas::digest_blocks(all, block, threads); });
        return py::bytes(reinterpret_cast<const char*>(rows.data()),
                         rows.size() * sizeof(replicas::Digest));
      },
      "ranges"_a, "block"_a = 0, "threads"_a = 1);
}

}  // namespace oddrank
