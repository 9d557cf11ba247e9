// Bindings of csrc/run: the snapshots that guards send.
#include <pybind11/pybind11.h>

#include "os/error.hpp"
#include "os/utf8.hpp"
#include "run/worker_snapshot.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

py::dict unpack_snapshot(const py::bytes& bytes) {
  const auto snapshot = run::unpack_snapshot(std::string_view(bytes));
  if (!snapshot) throw Error("a guard sent a snapshot that is broken");
  py::list threads;
  for (const auto& thread : snapshot->threads) {
    threads.append(
        py::make_tuple(thread.tid, text(thread.state), static_cast<double>(thread.cpu_ns) / 1e9));
  }
  py::dict made;
  made["realtime_ns"] = snapshot->realtime_ns;
  made["letter"] = text(snapshot->letter);
  made["wait_status"] = snapshot->wait_status;
  made["start_time"] = snapshot->start_time;
  made["oom_kills"] = snapshot->oom_kills;
  made["cpu_ns"] = snapshot->cpu_ns;
  made["io_bytes"] = snapshot->io_bytes;
  made["events"] = snapshot->events;
  made["threads"] = threads;
  made["syscall"] = text(snapshot->syscall);
  made["wchan"] = text(snapshot->wchan);
  made["record"] = py::bytes(snapshot->record);
  return made;
}

}  // namespace

void bind_run(py::module_& m) {
  m.def("run_unpack_snapshot", &unpack_snapshot, py::arg("payload"),
        "Returns a guard's snapshot of its worker (csrc/run/worker_snapshot.hpp): threads are "
        "(tid, state, seconds of CPU time between two looks), record is a slim record or b''. "
        "Raises OddrankError if the payload is broken.");
}

}  // namespace oddrank
