// Bindings of csrc/run: the snapshots that guards send.
#include <pybind11/pybind11.h>

#include "control/messages.hpp"
#include "os/error.hpp"
#include "os/to_python.hpp"
#include "run/worker_snapshot.hpp"

namespace oddrank {
namespace {

py::dict unpack_snapshot(const py::bytes& bytes) {
  const auto snapshot = control::unpack<run::WorkerSnapshot>(std::string_view(bytes));
  if (!snapshot) throw Error("a guard sent a snapshot that is broken");
  const py::list threads = list_of(snapshot->threads, [](const auto& thread) {
    return tuple_of(
        {thread.tid, thread.letter, thread.wchan, static_cast<double>(thread.cpu_ns) / 1e9});
  });
  const py::list workers =
      list_of(snapshot->workers, [](const std::string& worker) { return py::bytes(worker); });
  return dict_of({"realtime_ns"_k = snapshot->realtime_ns, "letter"_k = snapshot->letter,
                  "wait_status"_k = snapshot->wait_status, "start_time"_k = snapshot->start_time,
                  "oom_kills"_k = snapshot->oom_kills, "cpu_ns"_k = snapshot->cpu_ns,
                  "io_bytes"_k = snapshot->io_bytes, "threads"_k = threads,
                  "record"_k = py::bytes(snapshot->record), "workers"_k = workers});
}

}  // namespace

void bind_run(py::module_& m) { m.def("run_unpack_snapshot", &unpack_snapshot); }

}  // namespace oddrank
