// Bindings of csrc/trace/read: one call a file, plain dicts and tuples out; no logic.
#include <pybind11/stl.h>

#include <limits>

#include "base/proc_stat.hpp"
#include "trace/bind.hpp"
#include "trace/bind_dicts.hpp"
#include "trace/read/history.hpp"
#include "trace/read/linetable.hpp"
#include "trace/read/snapshot.hpp"
#include "trace/record/source_hash.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

using trace::text;

py::tuple frame_tuple(const trace::Frame& frame) {
  return py::make_tuple(text(frame.function), text(frame.file), frame.line);
}

py::dict thread_dict(const trace::ThreadNow& now) {
  py::list stack;
  for (const trace::Frame& frame : now.stack) stack.append(frame_tuple(frame));
  py::dict made;
  made["tid"] = now.thread.tid;
  made["name"] = text(now.thread.name);
  made["ended"] = now.thread.state == trace::ThreadState::kEnded;
  made["depth"] = now.thread.depth;
  made["torn"] = now.thread.torn;
  made["events"] = now.thread.events;
  made["last_ns"] = now.last;
  made["stack"] = stack;
  return made;
}

py::dict collective_dict(const trace::CollectiveNow& now) {
  py::dict made;
  made["operation"] = text(now.operation);
  made["group"] = text(now.group);
  made["sequence"] = now.collective.sequence;
  made["bytes"] = now.collective.bytes;
  made["tid"] = now.collective.tid;
  made["number"] = now.collective.number;
  made["state"] = trace::name_of(now.collective.state);
  made["begin_ns"] = now.begin;
  made["end_ns"] = now.end;
  return made;
}

py::dict snapshot(const std::string& path) {
  trace::Snapshot now;
  {
    const py::gil_scoped_release release;
    now = trace::read_snapshot(path);
  }
  py::list threads, open, sections;
  for (const auto& thread : now.threads) threads.append(thread_dict(thread));
  for (const auto& collective : now.open) open.append(collective_dict(collective));
  for (const auto& section : now.sections) {
    sections.append(py::make_tuple(text(section.mark.text), section.mark.tid, section.begin));
  }
  py::dict made = trace::process_dict(now.process);
  trace::add_state(made, now.life, now.counters);
  made["step"] = now.counters.step;
  made["step_ns"] = now.step;
  made["last_ns"] = now.last_event;
  made["threads"] = threads;
  made["open"] = open;
  made["last_collective"] = now.last ? py::object(collective_dict(*now.last)) : py::none();
  made["sections"] = sections;
  made["trouble"] = text(now.trouble);
  return made;
}

py::tuple history(const std::string& path, std::size_t last) {
  trace::History read;
  {
    const py::gil_scoped_release release;
    read = trace::read_history(path, last);
  }
  py::list events;
  for (const auto& event : read.events) {
    events.append(py::make_tuple(event.time, event.tid, static_cast<int>(event.kind),
                                 frame_tuple(event.frame), event.source_hash, text(event.mark)));
  }
  return py::make_tuple(trace::process_dict(read.process), events, text(read.trouble));
}

std::vector<std::optional<std::uint32_t>> lines(std::uint32_t version_hex,
                                                const py::bytes& linetable,
                                                std::uint32_t first_line,
                                                const std::vector<std::uint32_t>& offsets) {
  const std::string_view bytes(linetable);
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const trace::LineTable table(version_hex, {data, bytes.size()}, first_line);
  std::vector<std::optional<std::uint32_t>> found;
  found.reserve(offsets.size());
  for (const std::uint32_t offset : offsets) found.push_back(table.line_at(offset));
  return found;
}

py::list kernel_states(const std::vector<std::int64_t>& ids) {
  constexpr std::int64_t kLargest = std::numeric_limits<pid_t>::max();
  py::list states;
  for (const std::int64_t id : ids) {
    const ProcStat stat = id > 0 && id <= kLargest ? read_stat(static_cast<pid_t>(id)) : ProcStat{};
    const std::string state(stat.state == 0 ? 0 : 1, stat.state);
    states.append(py::make_tuple(state, stat.cpu_ticks));
  }
  return states;
}

}  // namespace

void bind_trace_read(py::module_& m) {
  m.def(
      "trace_lines", &lines, py::arg("version_hex"), py::arg("linetable"), py::arg("first_line"),
      py::arg("offsets"),
      "The lines at these offsets (in bytes) of the bytecode of a code object of CPython 3.10-3.14;"
      " None where there is none, and for a table that no CPython has written.");
  m.def("trace_snapshot", &snapshot, py::arg("path"),
        "What the process of a record does now or did last: see oddrank/trace/record.py. Raises "
        "OddrankError where it is no record.");
  m.def("trace_history", &history, py::arg("path"), py::arg("last"),
        "(process, the last events and marks: (ns, tid, kind, (function, file, line), source hash, "
        "mark), what could not be read).");
  m.def("trace_source_hash", &trace::source_hash, py::arg("path"),
        py::call_guard<py::gil_scoped_release>(),
        "What a record keeps of a source file; 0 where it can't be read.");
  m.def("trace_kernel_states", &kernel_states, py::arg("ids"),
        "(state as /proc has it or '', ticks of CPU time) of each process or thread.");
}

}  // namespace oddrank
