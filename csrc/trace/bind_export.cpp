// Bindings of the exporter and the statistics: translates types; no logic.
#include <pybind11/stl.h>

#include <utility>
#include <vector>

#include "trace/bind.hpp"
#include "trace/bind_dicts.hpp"
#include "trace/read/export.hpp"
#include "trace/read/stats.hpp"

namespace py = pybind11;

namespace oddrank {

using trace::text;

namespace {

py::dict facts(const trace::Export& record) {
  const trace::ExportFacts found = record.facts();
  py::list clocks;
  for (const trace::ClockPicture& picture : found.clocks) {
    clocks.append(py::make_tuple(picture.tsc, picture.realtime_ns));
  }
  py::dict made = trace::process_dict(found.process);
  trace::add_state(made, found.life, found.counters);
  made["begin_ns"] = found.begin;
  made["clocks"] = clocks;
  return made;
}

bool start(trace::Export& record, std::int64_t process_id, std::int64_t origin_ns,
           const std::vector<std::pair<std::uint64_t, std::uint64_t>>& clocks, bool lines) {
  trace::ExportOptions options{process_id, origin_ns, {}, lines};
  for (const auto& [tsc, realtime_ns] : clocks) options.clocks.push_back({tsc, 0, realtime_ns});
  return record.start(options);
}

py::bytes chunk(trace::Export& record) {
  std::string made;
  {
    const py::gil_scoped_release release;
    made = record.chunk();
  }
  return py::bytes(made);
}

py::dict stats(const std::string& path, std::size_t most) {
  trace::Stats read;
  {
    const py::gil_scoped_release release;
    read = trace::read_stats(trace::RecordFile(path), most);
  }
  py::list codes;
  for (const trace::CodeUse& use : read.codes) {
    codes.append(py::make_tuple(text(use.frame.function), text(use.frame.file), use.frame.line,
                                use.events, use.calls, use.seconds, use.own));
  }
  py::dict made = trace::process_dict(read.process);
  trace::add_state(made, read.life, read.counters);
  made["threads"] = read.threads;
  made["events"] = read.events;
  made["window_events"] = read.window;
  made["window_lines"] = read.lines;
  made["marks"] = read.counters.marks_claimed;
  made["collectives"] = read.counters.collectives_claimed;
  made["begin_ns"] = read.begin;
  made["end_ns"] = read.end;
  made["window_begin_ns"] = read.window_begin;
  made["codes"] = codes;
  made["trouble"] = text(read.trouble);
  return made;
}

}  // namespace

void bind_trace_export(py::module_& m) {
  py::class_<trace::Export>(m, "TraceExport",
                            "One record as events of the Trace Event Format. One thread at a time.")
      .def(py::init<const std::string&>(), py::arg("path"),
           py::call_guard<py::gil_scoped_release>(), "Raises OddrankError where it is no record.")
      .def_property_readonly("facts", &facts,
                             "Whose it is, what it lacks, begin_ns (None: not known), clocks: "
                             "[(ticks, wall clock in ns)].")
      .def("start", &start, py::arg("process_id"), py::arg("origin_ns"), py::arg("clocks"),
           py::arg("lines"), py::call_guard<py::gil_scoped_release>(),
           "clocks: as facts has them, of all records of its boot. False where the record's "
           "ticks can't be told as times.")
      .def("chunk", &chunk, "The next MiB of text, each event after a comma; empty at the end.")
      .def_property_readonly("events", &trace::Export::events)
      .def_property_readonly("trouble",
                             [](const trace::Export& record) { return text(record.trouble()); });
  m.def("trace_stats", &stats, py::arg("path"), py::arg("most"),
        "How much a process has recorded and lost, and its busiest code: (function, file, line, "
        "events, calls, seconds, own seconds). Raises OddrankError where it is no record.");
}

}  // namespace oddrank
