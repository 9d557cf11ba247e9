// Bindings of csrc/bench/nccl's plans, memory and operations: translate types, release the GIL; no
// logic.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "bench/nccl/operation.hpp"
#include "os/cpython.hpp"

namespace oddrank {
namespace py = pybind11;

namespace {

using Unlocked = py::call_guard<WithoutGil>;
using Counts = std::vector<std::size_t>;

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                  "reduce",     "gather",     "scatter",        "all_to_all",
                                  "send",       "recv"};

py::dict to_dict(const nccl::Plan& plan) {
  py::list calls;
  for (const nccl::Call& call : plan.calls) {
    calls.append(py::make_tuple(kNames[static_cast<int>(call.function)], call.send_at, call.recv_at,
                                call.count, call.peer));
  }
  py::dict d;
  d["calls"] = calls;
  d["issued"] = plan.issued;
  d["send_count"] = plan.send_count;
  d["recv_count"] = plan.recv_count;
  d["send_at"] = plan.send_at;
  d["recv_at"] = plan.recv_at;
  d["element"] = plan.element;
  return d;
}

nccl::Request request(std::string collective, std::string dtype, std::string op, std::size_t bytes,
                      int rank, int world, int root, bool in_place, Counts send_counts,
                      Counts recv_counts) {
  return {std::move(collective),
          std::move(dtype),
          std::move(op),
          bytes,
          rank,
          world,
          root,
          in_place,
          std::move(send_counts),
          std::move(recv_counts)};
}

// `newest`: assume every function that we know; else those of the loaded library.
nccl::Abilities able(int version, bool newest, int compute_capability) {
  if (version == 0) return nccl::abilities(nccl::loaded(), compute_capability);
  return {version, newest, newest, newest, compute_capability};
}

}  // namespace

void bind_cuda_operation(py::module_& m) {
  m.def("nccl_collectives", &nccl::collectives,
        "Returns the names in the table of NCCL's collectives.");
  m.def(
      "nccl_refusal",
      [](std::string collective, std::string dtype, std::string op, int world, bool in_place,
         int version, int compute_capability) {
        return nccl::refusal(request(std::move(collective), std::move(dtype), std::move(op), 0, 0,
                                     world, 0, in_place, {}, {}),
                             able(version, true, compute_capability));
      },
      py::arg("collective"), py::arg("dtype"), py::arg("op"), py::kw_only(), py::arg("world"),
      py::arg("in_place"), py::arg("version") = 0, py::arg("compute_capability") = 0,
      "Returns why NCCL cannot run it, '' if it can. version: the library's (22809), 0 for the "
      "loaded one.");
  m.def(
      "nccl_plan",
      [](std::string collective, std::string dtype, std::string op, std::size_t bytes, int rank,
         int world, int root, bool in_place, Counts send_counts, Counts recv_counts, int version,
         bool newest) {
        return to_dict(nccl::plan(
            request(std::move(collective), std::move(dtype), std::move(op), bytes, rank, world,
                    root, in_place, std::move(send_counts), std::move(recv_counts)),
            able(version, newest, 0)));
      },
      py::arg("collective"), py::arg("dtype"), py::arg("op"), py::arg("bytes"), py::arg("rank"),
      py::arg("world"), py::kw_only(), py::arg("root") = 0, py::arg("in_place") = false,
      py::arg("send_counts") = Counts(), py::arg("recv_counts") = Counts(), py::arg("version") = 0,
      py::arg("newest") = false,
      "Returns one rank's NCCL calls. calls: (function, send_at, recv_at, count, peer), in "
      "elements of "
      "`element` bytes; send_count, recv_count: its windows; send_at, recv_at: its own part in "
      "them; "
      "issued: a description. version, newest: a library other than the loaded one.");

  py::class_<nccl::Memory, std::shared_ptr<nccl::Memory>>(
      m, "Memory", "The memory that a rank sends from and receives into: one allocation, zeroed.")
      .def(py::init([](std::shared_ptr<nccl::Communicator> communicator, std::size_t bytes,
                       bool registered, double seconds) {
             const WithoutGil unlocked;
             return std::make_shared<nccl::Memory>(std::move(communicator), bytes, registered,
                                                   Deadline::after_seconds(seconds));
           }),
           py::arg("communicator").none(false), py::arg("bytes"), py::kw_only(),
           py::arg("register") = false, py::arg("seconds") = 60.0)
      .def_property_readonly("data", [](const nccl::Memory& self) { return address(self.data()); })
      .def_property_readonly("bytes", &nccl::Memory::bytes)
      .def_property_readonly("allocator", &nccl::Memory::allocator)
      .def_property_readonly("registered", &nccl::Memory::registered)
      .def("close", py::overload_cast<>(&nccl::Memory::free), Unlocked());

  py::class_<nccl::Operation, std::shared_ptr<nccl::Operation>>(
      m, "Operation", "One collective on its memory, ready to run.")
      .def(py::init([](std::shared_ptr<nccl::Communicator> communicator,
                       std::shared_ptr<nccl::Memory> memory, std::string collective,
                       std::string dtype, std::string op, std::size_t bytes, int root,
                       bool in_place, Counts send_counts, Counts recv_counts, std::size_t recv_from,
                       std::size_t stride, std::size_t windows, std::size_t graph) {
             const nccl::Request wanted =
                 request(std::move(collective), std::move(dtype), std::move(op), bytes,
                         communicator->rank(), communicator->world(), root, in_place,
                         std::move(send_counts), std::move(recv_counts));
             const WithoutGil unlocked;
             return std::make_shared<nccl::Operation>(
                 std::move(communicator), std::move(memory), wanted,
                 nccl::Windows{recv_from, stride, windows}, graph);
           }),
           py::arg("communicator").none(false), py::arg("memory").none(false),
           py::arg("collective"), py::arg("dtype"), py::arg("op"), py::arg("bytes"), py::kw_only(),
           py::arg("root") = 0, py::arg("in_place") = false, py::arg("send_counts") = Counts(),
           py::arg("recv_counts") = Counts(), py::arg("recv_from") = 0, py::arg("stride") = 0,
           py::arg("windows") = 1, py::arg("graph") = 0)
      .def_property_readonly("send", [](const nccl::Operation& o) { return address(o.send()); })
      .def_property_readonly("recv", [](const nccl::Operation& o) { return address(o.recv()); })
      .def_property_readonly("issued", [](const nccl::Operation& o) { return o.plan().issued; })
      .def(
          "run",
          [](nccl::Operation& self, std::size_t turn, double seconds) {
            return self.run(turn, Deadline::after_seconds(seconds));
          },
          py::arg("turn") = 0, py::kw_only(), py::arg("seconds") = 60.0, Unlocked(),
          "Runs once, in window turn % windows. Returns its microseconds on the GPU.")
      .def(
          "block",
          [](nccl::Operation& self, std::size_t n, bool each, double seconds) {
            nccl::Times times;
            {
              const WithoutGil unlocked;
              times = self.block(n, each, Deadline::after_seconds(seconds));
            }
            return py::make_tuple(std::move(times.each), times.mean);
          },
          py::arg("n"), py::kw_only(), py::arg("each") = true, py::arg("seconds") = 60.0,
          "Runs n times. Returns (microseconds of each, mean). each=False: the mean alone, by one "
          "pair of events around all. With a graph: one value per launch, per operation in it.")
      .def(
          "spread",
          [](nccl::Operation& self, bool zeros, double seconds) {
            self.spread(zeros, Deadline::after_seconds(seconds));
          },
          py::arg("zeros"), py::kw_only(), py::arg("seconds") = 60.0, Unlocked(),
          "Copies the first window's contribution to all, or zeroes all.");
}

}  // namespace oddrank
