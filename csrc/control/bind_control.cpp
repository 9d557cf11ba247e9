// Bindings of csrc/control: translate types and release the GIL for calls that wait; no logic.
#include <pybind11/stl.h>

#include <utility>

#include "control/hub.hpp"
#include "control/net.hpp"
#include "control/process.hpp"
#include "control/worker.hpp"
#include "os/cpython.hpp"
#include "os/to_python.hpp"

namespace oddrank {
namespace {

using namespace control;  // NOLINT: this file translates that namespace

py::bytes bytes_of(const std::int64_t* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof *values};
}

// The fields of oddrank.control.stages.RankState by name.
py::dict rank_state(int rank, const RankRecord& one) {
  const Hello& hello = one.hello;
  const State& state = one.state;
  return dict_of({"rank"_k = rank,
                  "host"_k = hello.host,
                  "node"_k = hello.node,
                  "local_rank"_k = hello.local_rank,
                  "local_world"_k = hello.local_world,
                  "pid"_k = hello.pid,
                  "launcher"_k = hello.launcher,
                  "launcher_pid"_k = hello.launcher_pid,
                  "contact"_k = name_of(one.contact),
                  "parting"_k = one.parting,
                  "state"_k = name_of(state.life),
                  "signal"_k = state.signal != 0 ? Value(state.signal) : Value(),
                  "exit_code"_k = known_or_none(state.exit_code),
                  "wchan"_k = state.wchan,
                  "stage"_k = state.stage,
                  "step"_k = state.step,
                  "progress"_k = state.progress,
                  "waiting"_k = state.waiting,
                  "published"_k = state.published,
                  "failed"_k = one.failed ? Value(one.failure) : Value(),
                  "sigterm"_k = state.terminated,
                  "sigterm_by"_k = state.terminated_by,
                  "first_fault_ns"_k = one.fault_ns,
                  "orphaned"_k = state.orphaned,
                  "resolver_slow"_k = state.resolver_slow,
                  "quiet_ms"_k = state.quiet_ms,
                  "oom_kills"_k = state.oom_kills});
}

void bind_worker(py::module_& m) {
  py::class_<Timestamps>(m, "Timestamps")
      .def("enter", &Timestamps::enter)
      .def("leave", &Timestamps::leave)
      .def("starts", [](const Timestamps& self) { return bytes_of(self.starts(), self.count()); })
      .def("durations",
           [](const Timestamps& self) { return bytes_of(self.durations(), self.count()); })
      .def_property_readonly("count", &Timestamps::count)
      .def_property_readonly("dropped", &Timestamps::dropped);
  py::class_<Worker, std::unique_ptr<Worker, py::nodelete>>(m, "Worker")
      .def("mark_stage", &Worker::mark_stage)
      .def("mark_step",
           [](Worker& self, std::string_view step, bool waiting) { self.mark_step(step, waiting); })
      .def("mark_waiting_in_join",
           [](Worker& self, std::string_view step) { self.mark_step(step, true, true); })
      .def("wait",
           [](Worker& self, Deadline deadline) {
             const auto signal = without_gil([&] { return self.wait(deadline); });
             using What = Worker::Signal::What;
             const char* what = signal.what == What::kGo     ? "go"
                                : signal.what == What::kEnd  ? "end"
                                : signal.what == What::kLost ? "lost"
                                                             : "timeout";
             return tuple_of({what, signal.go.stage_number, signal.go.stage, signal.go.parameters,
                              signal.exit_code});
           })
      // Returns (nanoseconds to add to this rank's CLOCK_MONOTONIC to get the root's, error bound).
      .def("sync_clock",
           [](Worker& self, Deadline deadline, bool shortcut) {
             const auto answer = without_gil([&] { return self.sync_clock(deadline, shortcut); });
             return tuple_of({answer.offset_ns, answer.error_ns});
           })
      .def("timestamps", &Worker::timestamps)
      .def("send_address", &Worker::send_address, py::call_guard<WithoutGil>())
      .def("publish",
           [](Worker& self, const py::bytes& payload) {
             const std::string_view bytes(payload);
             const WithoutGil unlocked;
             self.publish(bytes);
           })
      .def("fail", &Worker::fail, py::call_guard<WithoutGil>())
      .def_property_readonly("guard", &Worker::guard);
  m.def(
      "start_worker",
      [](int rank, int world, int local_rank, int local_world, int node, std::string host,
         std::string launcher, std::vector<std::string> fetcher, std::string address,
         std::string rendezvous_file, bool published, Deadline deadline, Deadline join_deadline,
         int no_verdict) {
        return &Worker::start(
            {{{rank, world, local_rank, local_world, node, std::move(host), std::move(launcher)},
              std::move(address),
              std::move(rendezvous_file),
              std::move(fetcher)},
             published,
             deadline.ns(),
             join_deadline.ns(),
             no_verdict});
      },
      py::return_value_policy::reference);
}

void bind_hub(py::module_& m) {
  m.def("ignore_launchers_signals", &ignore_launchers_signals);
  py::class_<Hub>(m, "Hub")
      .def(py::init([](int listener, int world, std::string token, std::string host,
                       Deadline deadline, unsigned heartbeat_ms, unsigned silence_ms) {
             return std::make_unique<Hub>(
                 Fd(listener), HubOptions{world, std::move(token), std::move(host), deadline.ns(),
                                          heartbeat_ms, silence_ms});
           }),
           "listener"_a, "world"_a, "token"_a, "host"_a, "deadline"_a, "heartbeat_ms"_a = 0,
           "silence_ms"_a = 0)
      .def("begin", &Hub::begin, py::call_guard<WithoutGil>())
      .def(
          "wait", [](Hub& self, Deadline until) { return name_of(self.wait(until)); },
          py::call_guard<WithoutGil>())
      .def("refresh", &Hub::refresh, py::call_guard<WithoutGil>())
      .def("send_roster", &Hub::send_roster, py::call_guard<WithoutGil>())
      .def("end", &Hub::end, py::call_guard<WithoutGil>())
      .def("snapshot",
           [](Hub& self) {
             const auto records = without_gil([&] { return self.snapshot(); });
             py::list states(records.size());
             for (std::size_t i = 0; i < records.size(); ++i) {
               states[i] = rank_state(static_cast<int>(i), records[i]);
             }
             return states;
           })
      .def("results",
           [](Hub& self) {
             py::dict results;
             const std::vector<RankRecord> records = self.snapshot();
             for (std::size_t i = 0; i < records.size(); ++i) {
               if (!records[i].has_result) continue;
               const auto& bytes = records[i].result;  // null in join
               results[py::int_(i)] = bytes ? py::bytes(*bytes) : py::bytes();
             }
             return results;
           })
      .def("result_count", &Hub::result_count)
      .def("remaining", [](Hub& self) { return static_cast<double>(self.remaining_ns()) / 1e9; })
      .def("notes", [](Hub& self) {
        const HubNotes notes = self.notes();
        const py::list odd = list_of(notes.odd, [](const OddClaim& claim) {
          return tuple_of(
              {claim.rank, claim.other_world, claim.text, claim.world, claim.pid, claim.host});
        });
        return tuple_of({notes.limits, odd, notes.foreign, notes.reached_at});
      });
}

}  // namespace

void bind_control(py::module_& m) {
  bind_worker(m);
  bind_hub(m);
  m.def("control_interfaces", &interface_addresses);
  m.def("control_interface_towards", &interface_towards);
  // Returns (hosts, port, token) of "ip,ip:port#token".
  m.def("control_parse_address", [](const std::string& address) {
    const RootAddress parsed = RootAddress::parse(address);
    return tuple_of({list_of(parsed.hosts), parsed.port, parsed.token});
  });
  m.def("control_keep", [](pid_t rank, Deadline deadline, const std::vector<int>& passed_on) {
    keep(rank, deadline.ns(), passed_on);
  });
  m.def("kill_this_process_in", [](Deadline deadline) { kill_this_process_at(deadline.ns()); });
}

}  // namespace oddrank
