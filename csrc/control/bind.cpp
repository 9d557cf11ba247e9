// Bindings of csrc/control: translate types, release the GIL; no logic.
#include "control/bind.hpp"

#include <pybind11/stl.h>

#include "base/clock.hpp"
#include "control/hub.hpp"
#include "control/keeper.hpp"
#include "control/process.hpp"
#include "control/route.hpp"
#include "control/worker.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

using namespace control;  // NOLINT: this file translates that namespace

std::int64_t ns_in(double seconds) {
  return monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
}

py::object optional_int(bool present, int value) {
  return present ? py::object(py::int_(value)) : py::object(py::none());
}

// Python's own decoding errors must not lose a verdict: bad UTF-8 is replaced.
py::str text(const std::string& bytes) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

// In the order of oddrank.control.root.RankState's fields.
py::tuple rank_state(int rank, const RankRecord& one) {
  const State& state = one.state;
  return py::make_tuple(
      rank, text(one.hello.host), one.hello.node, one.hello.local_rank, one.hello.pid,
      name_of(one.contact), name_of(state.life), optional_int(state.signal != 0, state.signal),
      optional_int(state.exit_code >= 0, state.exit_code), text(state.wchan), text(state.stage),
      text(state.step), state.progress, state.waiting, state.published,
      one.failed ? py::object(text(one.failure)) : py::object(py::none()), state.terminated != 0,
      one.fault_ns, state.terminated_by, state.orphaned, state.resolver_slow);
}

void bind_worker(py::module_& m) {
  py::class_<Worker, std::unique_ptr<Worker, py::nodelete>>(m, "Worker")
      .def("mark_stage", &Worker::mark_stage)
      .def("mark_step", &Worker::mark_step)
      .def("mark_waiting_in_join", &Worker::mark_waiting_in_join)
      .def("wait",
           [](Worker& self, double seconds) {
             Worker::Signal signal;
             {
               const py::gil_scoped_release release;
               signal = self.wait(ns_in(seconds));
             }
             using What = Worker::Signal::What;
             const char* what = signal.what == What::kGo     ? "go"
                                : signal.what == What::kEnd  ? "end"
                                : signal.what == What::kLost ? "lost"
                                                             : "timeout";
             return py::make_tuple(what, signal.go.stage_number, text(signal.go.stage),
                                   text(signal.go.parameters), signal.exit_code);
           })
      // (nanoseconds to add to this rank's CLOCK_MONOTONIC to get the root's, error bound)
      .def("sync_clock",
           [](Worker& self, double seconds, bool shortcut) {
             ClockAnswer answer;
             {
               const py::gil_scoped_release release;
               answer = self.sync_clock(ns_in(seconds), shortcut);
             }
             return py::make_tuple(answer.offset_ns, answer.error_ns);
           })
      .def("laps",
           [](Worker& self, std::int64_t capacity) { return make_laps(self.laps(capacity)); })
      .def("send_address", &Worker::send_address, py::call_guard<py::gil_scoped_release>())
      .def("publish",
           [](Worker& self, const py::bytes& payload) {
             const std::string_view bytes(payload);
             const py::gil_scoped_release release;
             self.publish(bytes);
           })
      .def("fail", &Worker::fail, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("guard", &Worker::guard);
  m.def(
      "start_worker",
      [](int rank, int world, int local_rank, int local_world, int node, std::string host,
         std::string address, std::string meeting_point, bool published, double deadline,
         double join_deadline, int no_verdict) {
        GuardOptions options;
        options.rank = rank;
        options.world = world;
        options.local_rank = local_rank;
        options.local_world = local_world;
        options.node = node;
        options.host = std::move(host);
        options.address = std::move(address);
        options.meeting_point = std::move(meeting_point);
        options.published = published;
        options.deadline_ns = ns_in(deadline);
        options.join_deadline_ns = ns_in(join_deadline);
        options.no_verdict = no_verdict;
        return &Worker::start(options);
      },
      py::return_value_policy::reference);
}

void bind_hub(py::module_& m) {
  m.def("ignore_launchers_signals", &ignore_launchers_signals,
        "Those that launchers and people send to all processes of a job.");
  py::class_<Hub>(m, "Hub")
      .def(py::init([](int listener, int world, std::string token, std::string host,
                       double deadline, unsigned heartbeat_ms, unsigned silence_ms) {
             HubOptions options;
             options.world = world;
             options.token = std::move(token);
             options.host = std::move(host);
             options.deadline_ns = ns_in(deadline);
             options.heartbeat_ms = heartbeat_ms;
             options.silence_ms = silence_ms;
             return std::make_unique<Hub>(Fd(listener), std::move(options));
           }),
           py::arg("listener"), py::arg("world"), py::arg("token"), py::arg("host"),
           py::arg("deadline"), py::arg("heartbeat_ms") = 0, py::arg("silence_ms") = 0)
      .def(
          "begin",
          [](Hub& self, unsigned number, const std::string& stage, const std::string& parameters,
             double seconds) { self.begin(number, stage, parameters, ns_in(seconds)); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "wait", [](Hub& self, double seconds) { return name_of(self.wait(ns_in(seconds))); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "refresh", [](Hub& self, double seconds) { self.refresh(ns_in(seconds)); },
          py::call_guard<py::gil_scoped_release>())
      .def("send_roster", &Hub::send_roster, py::call_guard<py::gil_scoped_release>())
      .def(
          "end", [](Hub& self, int code, double seconds) { self.end(code, ns_in(seconds)); },
          py::call_guard<py::gil_scoped_release>())
      .def("snapshot",
           [](Hub& self) {
             std::vector<RankRecord> records;
             {
               const py::gil_scoped_release release;
               records = self.snapshot();
             }
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
               const auto& bytes = records[i].result;  // none in join
               results[py::int_(i)] = bytes ? py::bytes(*bytes) : py::bytes();
             }
             return results;
           })
      .def("result_count", &Hub::result_count)
      .def("remaining", [](Hub& self) { return static_cast<double>(self.remaining_ns()) / 1e9; })
      .def("notes", [](Hub& self) {
        const HubNotes notes = self.notes();
        py::list odd;
        for (const OddClaim& claim : notes.odd) {
          odd.append(py::make_tuple(claim.rank, claim.other_world, text(claim.text)));
        }
        return py::make_tuple(text(notes.limits), odd, notes.foreign, text(notes.reached_at));
      });
}

}  // namespace

void bind_control(py::module_& m) {
  bind_laps(m);
  bind_worker(m);
  bind_hub(m);
  // (listening descriptor, port); port 0: any
  m.def("control_listen", [](std::uint16_t port) {
    Fd listener = listen_on(port);
    const std::uint16_t bound = port_of(listener.get());
    return py::make_tuple(listener.release(), bound);
  });
  m.def("control_token", &random_token);
  m.def("control_interfaces", &interface_addresses);
  m.def("control_interface_towards", &interface_towards);
  // (hosts, port, token) of "ip,ip:port#token"
  m.def("control_parse_address", [](const std::string& address) {
    const RootAddress parsed = RootAddress::parse(address);
    return py::make_tuple(parsed.hosts, parsed.port, parsed.token);
  });
  m.def("control_keep", [](pid_t rank, double seconds, const std::vector<int>& passed_on) {
    keep(rank, ns_in(seconds), passed_on);
  });
  m.def("kill_this_process_in", [](double seconds) { kill_this_process_at(ns_in(seconds)); });
}

}  // namespace oddrank
