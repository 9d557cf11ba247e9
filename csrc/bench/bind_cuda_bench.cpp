// Bindings of csrc/bench that need CUDA or NCCL: translate types, release the GIL; no logic.
#include <pybind11/stl.h>

#include <tuple>

#include "bench/nccl/operation.hpp"
#include "bench/verify/verify.hpp"
#include "os/cpython.hpp"
#include "os/to_python.hpp"

namespace oddrank {
namespace {

using Unlocked = py::call_guard<WithoutGil>;

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

py::dict load_nccl(const std::string& file, const std::string& source) {
  const nccl::Api* api = without_gil([&] { return &nccl::load(file, source); });
  return dict_of({"path"_k = api->path, "version"_k = api->version,
                  "version_text"_k = nccl::version_text(api->version),
                  "missing"_k = list_of(api->missing)});
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

// Address, source, first element, count.
using Place = std::tuple<std::uintptr_t, std::int64_t, std::int64_t, std::int64_t>;

std::vector<bench::Placed> placed(std::string_view dtype, std::string_view op, std::int64_t world,
                                  std::int64_t turn, const std::vector<Place>& places) {
  std::vector<bench::Placed> all;
  all.reserve(places.size());
  for (const auto& [address, source, first, count] : places) {
    all.push_back({address, bench::make_segment(dtype, op, source, world, first, count, turn)});
  }
  return all;
}

void bind_verify(py::module_& m) {
  m.def(
      "gpu_fill",
      [](int device, std::string_view dtype, std::string_view op, std::int64_t world,
         std::int64_t turn, const std::vector<Place>& places, Deadline deadline) {
        const WithoutGil unlocked;
        bench::fill_on_device(device, placed(dtype, op, world, turn, places), deadline);
      },
      "device"_a, "dtype"_a, "op"_a, "world"_a, "turn"_a, "places"_a, py::kw_only(),
      "seconds"_a = 60.0);
  m.def(
      "gpu_check",
      [](int device, std::string_view dtype, std::string_view op, std::int64_t world,
         std::int64_t turn, const std::vector<Place>& places, Deadline deadline) {
        const auto found = without_gil([&] {
          return bench::check_on_device(device, placed(dtype, op, world, turn, places), deadline);
        });
        py::list mismatches;
        for (const bench::Mismatch& one : found) {
          append(mismatches, {one.wrong, one.index, one.expected, one.got});
        }
        return mismatches;
      },
      "device"_a, "dtype"_a, "op"_a, "world"_a, "turn"_a, "places"_a, py::kw_only(),
      "seconds"_a = 60.0);
  m.def(
      "gpu_noise",
      [](int device, std::uintptr_t address, std::size_t bytes, std::string_view dtype,
         std::string_view op, bool low, Deadline deadline) {
        const auto noise = bench::noise_of(bench::dtype_of(dtype), bench::op_of(op), low);
        const WithoutGil unlocked;
        bench::fill_with_noise_on_device(device, address, bytes, noise, deadline);
      },
      "device"_a, "address"_a, "bytes"_a, "dtype"_a, "op"_a, py::kw_only(), "low"_a,
      "seconds"_a = 60.0);
}

void bind_library(py::module_& m) {
  m.def("load_nccl", &load_nccl);
  m.def("nccl_unique_id", [] {
    const auto id = without_gil([&] { return nccl::make_unique_id(); });
    return py::bytes(id.data(), id.size());
  });
  m.def("nccl_obstacle", &nccl::obstacle);
}

void bind_communicator(py::module_& m) {
  py::class_<nccl::Communicator, std::shared_ptr<nccl::Communicator>>(m, "Communicator")
      .def(py::init([](const py::bytes& id, int rank, int world, int device, Deadline deadline) {
             const nccl::UniqueId unique_id = to_unique_id(id);
             const WithoutGil unlocked;
             return std::make_shared<nccl::Communicator>(unique_id, rank, world, device, deadline);
           }),
           "unique_id"_a, "rank"_a, "world"_a, py::kw_only(), "device"_a = -1, "seconds"_a = 60.0)
      .def_property_readonly("rank", &nccl::Communicator::rank)
      .def_property_readonly("world", &nccl::Communicator::world)
      .def_property_readonly("device", &nccl::Communicator::device)
      .def_property_readonly("direct", &nccl::Communicator::direct)
      .def("close", &nccl::Communicator::close, py::kw_only(), "seconds"_a = 10.0, Unlocked())
      .def("abort", &nccl::Communicator::abort, Unlocked());
  py::class_<nccl::Memory, std::shared_ptr<nccl::Memory>>(m, "Memory")
      .def(py::init([](std::shared_ptr<nccl::Communicator> communicator, std::size_t bytes,
                       const std::string& registered, Deadline deadline) {
             const WithoutGil unlocked;
             return std::make_shared<nccl::Memory>(std::move(communicator), bytes,
                                                   nccl::registration_of(registered), deadline);
           }),
           "communicator"_a.none(false), "bytes"_a, py::kw_only(), "register"_a = "",
           "seconds"_a = 60.0)
      .def_property_readonly("data", [](const nccl::Memory& self) { return address(self.data()); })
      .def_property_readonly("bytes", &nccl::Memory::bytes)
      .def_property_readonly("allocator", &nccl::Memory::allocator)
      .def_property_readonly("registered", &nccl::Memory::registered)
      .def("close", py::overload_cast<>(&nccl::Memory::free), Unlocked());
}

// Function, offsets, count, peer: as nccl::Call.
using Called = std::tuple<std::string, std::size_t, std::size_t, std::size_t, int>;

void bind_operation(py::module_& m) {
  py::class_<nccl::Operation, std::shared_ptr<nccl::Operation>>(m, "Operation")
      .def(py::init([](std::shared_ptr<nccl::Communicator> communicator,
                       std::shared_ptr<nccl::Memory> memory, std::string name,
                       const std::vector<Called>& calls, int dtype, int op, std::size_t send_bytes,
                       std::size_t recv_bytes, std::size_t element, std::size_t recv_from,
                       std::size_t stride, std::size_t windows) {
             nccl::Plan plan{std::move(name),
                             {},
                             static_cast<ncclDataType_t>(dtype),
                             static_cast<ncclRedOp_t>(op),
                             element,
                             send_bytes,
                             recv_bytes};
             for (const auto& [function, send_at, recv_at, count, peer] : calls) {
               plan.calls.push_back({nccl::function_of(function), send_at, recv_at, count, peer});
             }
             const WithoutGil unlocked;
             return std::make_shared<nccl::Operation>(std::move(communicator), std::move(memory),
                                                      std::move(plan),
                                                      nccl::Windows{recv_from, stride, windows});
           }),
           "communicator"_a.none(false), "memory"_a.none(false), "name"_a, "calls"_a, "dtype"_a,
           "op"_a, py::kw_only(), "send_bytes"_a, "recv_bytes"_a, "element"_a = 1,
           "recv_from"_a = 0, "stride"_a = 0, "windows"_a = 1)
      .def_property_readonly("send", [](const nccl::Operation& o) { return address(o.send()); })
      .def_property_readonly("recv", [](const nccl::Operation& o) { return address(o.recv()); })
      .def("run", &nccl::Operation::run, py::kw_only(), "seconds"_a = 60.0, Unlocked())
      .def(
          "block",
          [](nccl::Operation& self, std::size_t n, bool each, Deadline deadline) {
            const auto times = without_gil([&] { return self.block(n, each, deadline); });
            return tuple_of({list_of(times.each), times.mean});
          },
          "n"_a, py::kw_only(), "each"_a = true, "seconds"_a = 60.0);
}

}  // namespace

void bind_cuda_bench(py::module_& m) {
  bind_verify(m);
  bind_library(m);
  bind_communicator(m);
  bind_operation(m);
}

}  // namespace oddrank
