// Bindings of csrc/bench that need CUDA or NCCL: translate types, release the GIL; no logic.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "bench/bind_bench.hpp"
#include "bench/nccl/communicator.hpp"
#include "bench/verify/verify.hpp"
#include "os/cpython.hpp"
#include "os/error.hpp"

namespace oddrank {
namespace py = pybind11;

void bind_cuda_operation(py::module_& m);  // bind_cuda_operation.cpp

namespace {

using Unlocked = py::call_guard<WithoutGil>;

py::dict load_nccl(const std::string& wheel) {
  const nccl::Api* api = nullptr;
  {
    const WithoutGil unlocked;
    api = &nccl::load(wheel);
  }
  py::dict d;
  d["path"] = api->path;
  d["version"] = api->version;
  d["version_text"] = nccl::version_text(api->version);
  d["source"] = api->source;
  d["missing"] = api->missing;
  d["mapped"] = nccl::mapped_libraries();
  d["warning"] = nccl::several_libraries_warning();
  return d;
}

nccl::UniqueId to_unique_id(const py::bytes& bytes) {
  const std::string_view view(bytes);
  nccl::UniqueId id{};
  if (view.size() != id.size()) {
    throw Error("an NCCL unique id has " + std::to_string(id.size()) + " bytes, not " +
                std::to_string(view.size()));
  }
  std::copy(view.begin(), view.end(), id.begin());
  return id;
}

void bind_verify(py::module_& m) {
  m.def(
      "gpu_fill",
      [](int device, std::uintptr_t address, std::string_view dtype, std::string_view op,
         std::int64_t source, std::int64_t world, std::int64_t first, std::int64_t count,
         std::int64_t turn, double seconds) {
        const auto segment = bench::make_segment(dtype, op, source, world, first, count, turn);
        const WithoutGil unlocked;
        bench::fill_on_device(device, address, segment, Deadline::after_seconds(seconds));
      },
      py::arg("device"), py::arg("address"), py::arg("dtype"), py::arg("op"), py::arg("source"),
      py::arg("world"), py::arg("first"), py::arg("count"), py::arg("turn"), py::kw_only(),
      py::arg("seconds") = 60.0, "As bench_fill, in the memory of a GPU.");
  m.def(
      "gpu_check",
      [](int device, std::uintptr_t address, std::string_view dtype, std::string_view op,
         std::int64_t source, std::int64_t world, std::int64_t first, std::int64_t count,
         std::int64_t turn, double seconds) {
        const auto segment = bench::make_segment(dtype, op, source, world, first, count, turn);
        bench::Mismatch found;
        {
          const WithoutGil unlocked;
          found =
              bench::check_on_device(device, address, segment, Deadline::after_seconds(seconds));
        }
        return mismatch_tuple(found);
      },
      py::arg("device"), py::arg("address"), py::arg("dtype"), py::arg("op"), py::arg("source"),
      py::arg("world"), py::arg("first"), py::arg("count"), py::arg("turn"), py::kw_only(),
      py::arg("seconds") = 60.0, "As bench_check, in the memory of a GPU.");
}

}  // namespace

void bind_cuda_bench(py::module_& m) {
  bind_verify(m);
  m.def("load_nccl", &load_nccl, py::arg("wheel") = "",
        "Loads NCCL once per process; `wheel`: libnccl.so.2 of the nvidia-nccl wheel, or ''.");
  m.def(
      "nccl_unique_id",
      [] {
        nccl::UniqueId id;
        {
          const WithoutGil unlocked;
          id = nccl::make_unique_id();
        }
        return py::bytes(id.data(), id.size());
      },
      "Returns a new 128-byte id for one communicator.");
  m.def("nccl_obstacle", &nccl::obstacle,
        "Returns why this environment allows no communicator, '' if it does.");
  py::class_<nccl::Communicator, std::shared_ptr<nccl::Communicator>>(
      m, "Communicator", "An NCCL communicator that is created and closed with deadlines.")
      .def(py::init([](const py::bytes& id, int rank, int world, int device, double seconds) {
             const nccl::UniqueId unique_id = to_unique_id(id);
             const WithoutGil unlocked;
             return std::make_shared<nccl::Communicator>(unique_id, rank, world, device,
                                                         Deadline::after_seconds(seconds));
           }),
           py::arg("unique_id"), py::arg("rank"), py::arg("world"), py::kw_only(),
           py::arg("device") = -1, py::arg("seconds") = 60.0)
      .def_property_readonly("rank", &nccl::Communicator::rank)
      .def_property_readonly("world", &nccl::Communicator::world)
      .def_property_readonly("device", &nccl::Communicator::device)
      .def_property_readonly("direct", &nccl::Communicator::direct)
      .def(
          "close",
          [](nccl::Communicator& self, double seconds) {
            self.close(Deadline::after_seconds(seconds));
          },
          py::kw_only(), py::arg("seconds") = 10.0, Unlocked())
      .def("abort", &nccl::Communicator::abort, Unlocked());
  bind_cuda_operation(m);
}

}  // namespace oddrank
