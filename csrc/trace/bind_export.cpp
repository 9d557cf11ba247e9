// Bindings of the exporter: translates types; no logic.
#include <pybind11/stl.h>

#include "trace/bind.hpp"
#include "trace/read/export.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

py::str text(std::string_view bytes) {
  PyObject* made =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<py::ssize_t>(bytes.size()), "replace");
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

py::dict facts(const trace::Export& record) {
  const trace::ExportFacts found = record.facts();
  py::dict made;
  made["pid"] = found.process.pid;
  made["rank"] = found.process.rank;
  made["world"] = found.process.world;
  made["host"] = text(found.process.host);
  made["boot_id"] = text(found.process.boot_id);
  made["begin_ns"] = found.begin;
  made["ticks_per_ns"] = found.ticks_per_ns;
  return made;
}

bool start(trace::Export& record, std::int64_t process_id, std::int64_t origin_ns,
           double ticks_per_ns, bool lines) {
  return record.start({process_id, origin_ns, ticks_per_ns, lines});
}

py::bytes chunk(trace::Export& record) {
  std::string made;
  {
    const py::gil_scoped_release release;
    made = record.chunk();
  }
  return py::bytes(made);
}

}  // namespace

void bind_trace_export(py::module_& m) {
  py::class_<trace::Export>(m, "TraceExport",
                            "One record as events of the Trace Event Format. One thread at a time.")
      .def(py::init<const std::string&>(), py::arg("path"),
           py::call_guard<py::gil_scoped_release>(), "Raises OddrankError where it is no record.")
      .def_property_readonly("facts", &facts,
                             "pid, rank, world, host, boot_id, begin_ns (None: not known), "
                             "ticks_per_ns (0: not known).")
      .def("start", &start, py::arg("process_id"), py::arg("origin_ns"), py::arg("ticks_per_ns"),
           py::arg("lines"), py::call_guard<py::gil_scoped_release>(),
           "False where the record's ticks can't be told as times.")
      .def("chunk", &chunk, "The next MiB of text, each event after a comma; empty at the end.")
      .def_property_readonly("events", &trace::Export::events)
      .def_property_readonly("trouble",
                             [](const trace::Export& record) { return text(record.trouble()); });
}

}  // namespace oddrank
