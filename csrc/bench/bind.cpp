// Bindings of csrc/bench that run everywhere: translate types, release the GIL; no logic.
#include "bench/bind.hpp"

#include <bit>
#include <string_view>

#include "bench/nvml.hpp"
#include "bench/verify/host.hpp"

namespace oddrank {
namespace py = pybind11;

void bind_bench(py::module_& m) {
  m.def(
      "bench_fill",
      [](std::uintptr_t address, std::string_view dtype, std::string_view op, std::int64_t source,
         std::int64_t world, std::int64_t first, std::int64_t count, std::int64_t turn) {
        const auto segment = bench::make_segment(dtype, op, source, world, first, count, turn);
        py::gil_scoped_release unlocked;
        bench::fill(std::bit_cast<void*>(address), segment);
      },
      py::arg("address"), py::arg("dtype"), py::arg("op"), py::arg("source"), py::arg("world"),
      py::arg("first"), py::arg("count"), py::arg("turn"),
      "Writes what rank `source` puts into a collective: elements first..first+count of its data.");
  m.def(
      "bench_check",
      [](std::uintptr_t address, std::string_view dtype, std::string_view op, std::int64_t source,
         std::int64_t world, std::int64_t first, std::int64_t count, std::int64_t turn) {
        const auto segment = bench::make_segment(dtype, op, source, world, first, count, turn);
        bench::Mismatch found;
        {
          py::gil_scoped_release unlocked;
          found = bench::check(std::bit_cast<const void*>(address), segment);
        }
        return mismatch_tuple(found);
      },
      py::arg("address"), py::arg("dtype"), py::arg("op"), py::arg("source"), py::arg("world"),
      py::arg("first"), py::arg("count"), py::arg("turn"),
      "(number wrong, index of the first in the buffer or -1, expected, got).");
  m.def(
      "bench_turns",
      [](std::string_view dtype, std::string_view op, std::int64_t world, std::int64_t count,
         std::uint64_t most) {
        const auto all = bench::make_segment(dtype, op, 0, world, 0, count, 0);
        py::gil_scoped_release unlocked;
        return bench::turns(all.dtype, all.op, all.world, all.count, most);
      },
      py::arg("dtype"), py::arg("op"), py::arg("world"), py::arg("count"), py::arg("most"),
      "How many turns until every rank has contributed to one of `count` elements, up to `most`.");
  m.def(
      "gpu_links",
      [](const std::string& uuid, const std::string& library) {
        bench::GpuLinks links;
        {
          py::gil_scoped_release unlocked;
          links = bench::gpu_links(uuid, library);
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
      "What joins the GPU `GPU-...` to others; OddrankError where NVML can't tell.");
}

}  // namespace oddrank
