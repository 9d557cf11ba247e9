// Binds csrc/trace/read and export: one call per record, returns plain dicts and tuples; no logic.
#include <pybind11/stl.h>

#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "os/cpython.hpp"
#include "os/proc.hpp"
#include "os/utf8.hpp"
#include "trace/export/export.hpp"
#include "trace/format/format.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/slim.hpp"
#include "trace/read/snapshot.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

py::dict process_dict(const trace::Process& process) {
  py::dict made;
  made["pid"] = process.pid;
  made["parent_pid"] = process.parent_pid;
  made["start_time"] = process.start_time;
  made["boot_id"] = text(process.boot_id);
  made["rank"] = process.rank;
  made["local_rank"] = process.local_rank;
  made["world"] = process.world;
  made["node"] = process.node;
  made["python"] = process.python;
  made["is_child"] = process.is_child;
  made["host"] = text(process.host);
  made["job"] = text(process.job);
  made["hook"] = text(process.hook);
  made["arguments"] = text(process.arguments);
  return made;
}

const char* name_of(trace::Liveness life) {
  switch (life) {
    case trace::Liveness::kAlive:
      return "alive";
    case trace::Liveness::kDead:
      return "dead";
    case trace::Liveness::kUnknown:
      break;
  }
  return "unknown";
}

// Returns null (None in Python) if the record holds an unknown value.
const char* name_of(trace::End end) {
  switch (end) {
    case trace::End::kNone:
      return "no word";
    case trace::End::kEnding:
      return "ending";
    case trace::End::kExited:
      return "exited";
  }
  return nullptr;
}

py::str name_of(trace::Kind kind) {
  switch (kind) {
    case trace::Kind::kNone:
      return "mark";
    case trace::Kind::kCall:
      return "call";
    case trace::Kind::kResume:
      return "resume";
    case trace::Kind::kLine:
      return "line";
    case trace::Kind::kReturn:
      return "return";
    case trace::Kind::kYield:
      return "yield";
    case trace::Kind::kUnwind:
      return "unwind";
    case trace::Kind::kThrow:
      return "throw";
    case trace::Kind::kGap:
      return "gap";
    case trace::Kind::kLevel:
      return "level";
  }
  return "event " + std::to_string(static_cast<int>(kind));
}

// Adds whether the process is alive, how it ended, and what its record lost.
void add_state(py::dict& made, trace::Liveness life, const trace::Counters& counters) {
  py::dict lost;
  lost["threads"] = counters.lost_threads;
  lost["codes"] = counters.lost_codes;
  lost["collectives"] = counters.lost_collectives;
  lost["groups"] = counters.lost_groups;
  made["life"] = name_of(life);
  made["end"] = name_of(counters.end);
  made["exit_code"] = counters.end == trace::End::kExited ? py::object(py::int_(counters.exit_code))
                                                          : py::object(py::none());
  made["raised"] = text(counters.raised);
  made["disarmed"] = counters.hook_state == static_cast<std::uint64_t>(trace::HookState::kDisarmed);
  made["displaced_by"] = text(counters.displaced_by);
  made["lost"] = lost;
}

py::tuple frame_tuple(const trace::Frame& frame) {
  return py::make_tuple(text(frame.function), text(frame.file), frame.line);
}

// (function, file, line, level, ns): the last two are None unless the line is unknown since the
// code is or was recorded at this level.
py::list stack_of(const trace::ThreadNow& now) {
  py::list stack;
  for (std::size_t i = 0; i < now.stack.size(); ++i) {
    const trace::Frame& frame = now.stack[i];
    const char* level = nullptr;
    if (frame.now.is_changed()) level = trace::kLevelNames[static_cast<int>(frame.now.level())];
    stack.append(
        py::make_tuple(text(frame.function), text(frame.file), frame.line, level, now.since[i]));
  }
  return stack;
}

// [(function, file, first line, level, the level that was asked for, ns)].
py::list lowered_list(const std::vector<trace::Lowered>& lowered) {
  py::list made;
  for (const trace::Lowered& one : lowered) {
    made.append(py::make_tuple(text(one.frame.function), text(one.frame.file), one.frame.line,
                               trace::kLevelNames[static_cast<int>(one.level)],
                               trace::kLevelNames[static_cast<int>(one.wanted)], one.since));
  }
  return made;
}

py::dict thread_dict(const trace::ThreadNow& now) {
  py::dict made;
  made["tid"] = now.thread.tid;
  made["name"] = text(now.thread.name);
  made["ended"] = now.thread.state == trace::ThreadState::kEnded;
  made["depth"] = now.thread.depth;
  made["torn"] = now.thread.torn;
  made["events"] = now.thread.events;
  made["last_ns"] = now.last;
  made["stack"] = stack_of(now);
  return made;
}

// (name, back end, description, size, own rank, ((first, step, count), ...)).
py::tuple group_tuple(const trace::ProcessGroup* group) {
  if (group == nullptr) return py::make_tuple("", "", "", 0, py::none(), py::tuple());
  py::list runs;
  for (const trace::RankRun& run : group->runs) {
    runs.append(py::make_tuple(run.first, run.step, run.count));
  }
  const std::optional<std::uint32_t> own =
      group->own == trace::kNoRank ? std::nullopt : std::optional(group->own);
  return py::make_tuple(text(group->name), text(group->backend), text(group->text), group->size,
                        own, py::tuple(runs));
}

// (data type, bytes in, bytes out, peer, tag, root, failed), with global ranks; None: none, or
// unknown.
py::tuple sizes_tuple(const trace::Collective& c, const trace::Dictionary& names) {
  const trace::ProcessGroup* group = names.group(c.group);
  std::optional<std::uint32_t> partner, peer, root;
  std::optional<std::int64_t> tag;
  if (group != nullptr && c.partner != trace::kNoRank) partner = group->global(c.partner);
  if (c.is_pair()) {
    peer = partner;
    tag = static_cast<std::int64_t>(c.other);
  } else if (c.role == trace::Role::kRoot) {
    root = partner;
  }
  return py::make_tuple(text(trace::name_of_type(c.data_type)), c.input(), c.output(), peer, tag,
                        root, c.failed);
}

py::dict collective_dict(const trace::CollectiveNow& now, const trace::Dictionary& names) {
  py::dict made;
  made["operation"] = text(now.operation);
  made["group"] = group_tuple(names.group(now.collective.group));
  made["sizes"] = sizes_tuple(now.collective, names);
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
    const WithoutGil unlocked;
    now = trace::read_snapshot(path);
  }
  const trace::Dictionary& names = *now.names;
  py::list threads, open, sections, groups;
  for (const auto& thread : now.threads) threads.append(thread_dict(thread));
  for (const auto& collective : now.open) open.append(collective_dict(collective, names));
  for (const auto& group : now.groups) {
    groups.append(py::make_tuple(group_tuple(names.group(group.progress.group)),
                                 group.progress.begun, group.progress.issued, group.progress.ended,
                                 group.last));
  }
  for (const auto& section : now.sections) {
    sections.append(py::make_tuple(text(section.mark.text), section.mark.tid, section.begin));
  }
  py::dict made = process_dict(now.process);
  add_state(made, now.life, now.counters);
  made["step"] = now.counters.step;
  made["step_ns"] = now.step;
  made["last_ns"] = now.last_event;
  made["threads"] = threads;
  made["open"] = open;
  made["last_collective"] = now.last ? py::object(collective_dict(*now.last, names)) : py::none();
  made["groups"] = groups;
  made["collectives_recorded"] = now.counters.collectives_since != 0;
  made["has_all_collectives"] = now.has_all_collectives;
  made["sections"] = sections;
  made["lowered"] = lowered_list(now.lowered);
  made["trouble"] = text(now.trouble);
  return made;
}

py::tuple history(const std::string& path, std::size_t last) {
  trace::History read;
  {
    const WithoutGil unlocked;
    read = trace::read_history(path, last);
  }
  py::list events;
  for (const auto& event : read.events) {
    events.append(py::make_tuple(event.time, event.tid, name_of(event.kind),
                                 frame_tuple(event.frame), event.source_hash, text(event.mark)));
  }
  return py::make_tuple(process_dict(read.process), events, text(read.trouble));
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
    states.append(py::make_tuple(state, stat.cpu_ticks, stat.wait_status, stat.start_time));
  }
  return states;
}

py::list collectives_of(const std::string& path) {
  std::vector<trace::Collective> found;
  std::optional<trace::Dictionary> names;
  trace::Clock clock;
  {
    const WithoutGil unlocked;
    const trace::RecordFile file(path);
    found = trace::read_joined_collectives(file);
    // After the collectives, so that every id is there.
    names.emplace(file);
    clock = trace::clock_of(file);
  }
  const auto time = [&clock](std::optional<std::uint64_t> ticks) {
    return ticks ? clock.realtime_ns(*ticks) : std::nullopt;
  };
  py::list tuples;
  std::map<std::uint32_t, py::object> groups;  // by id
  for (const trace::Collective& c : found) {
    py::object& group = groups[c.group];
    if (!group) group = group_tuple(names->group(c.group));
    tuples.append(py::make_tuple(c.tid, group, c.sequence, text(names->operation(c.operation)),
                                 c.bytes, trace::name_of(c.state), time(c.begin), time(c.end),
                                 sizes_tuple(c, *names)));
  }
  return tuples;
}

py::dict facts(const trace::Export& record) {
  const trace::ExportFacts found = record.facts();
  py::list clocks;
  for (const trace::ClockPicture& picture : found.clocks) {
    clocks.append(py::make_tuple(picture.tsc, picture.monotonic_ns, picture.realtime_ns));
  }
  py::dict made = process_dict(found.process);
  add_state(made, found.life, found.counters);
  made["begin_ns"] = found.begin;
  made["clocks"] = clocks;
  return made;
}

bool start(trace::Export& record, std::int64_t process_id, std::int64_t origin_ns,
           const std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>& clocks,
           bool lines) {
  trace::ExportOptions options{process_id, origin_ns, {}, lines};
  for (const auto& [tsc, monotonic_ns, realtime_ns] : clocks) {
    options.clocks.push_back({tsc, monotonic_ns, realtime_ns});
  }
  return record.start(options);
}

py::bytes chunk(trace::Export& record) {
  std::string made;
  {
    const WithoutGil unlocked;
    made = record.chunk();
  }
  return py::bytes(made);
}

py::dict stats(const std::string& path, std::size_t most) {
  trace::Stats read;
  {
    const WithoutGil unlocked;
    read = trace::read_stats(trace::RecordFile(path), most);
  }
  py::list codes;
  for (const trace::CodeUse& use : read.codes) {
    codes.append(py::make_tuple(text(use.frame.function), text(use.frame.file), use.frame.line,
                                use.events, use.calls, use.seconds, use.own));
  }
  py::dict made = process_dict(read.process);
  add_state(made, read.life, read.counters);
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
  made["lowered"] = lowered_list(read.lowered);
  made["trouble"] = text(read.trouble);
  return made;
}

}  // namespace

void bind_trace_read(py::module_& m) {
  m.def("trace_lines", &lines, py::arg("version_hex"), py::arg("linetable"), py::arg("first_line"),
        py::arg("offsets"),
        "Returns the lines at these offsets (bytes) of a code object; None if there is none, "
        "and for a table that no known CPython writes.");
  m.def("trace_snapshot", &snapshot, py::arg("path"),
        "Returns what the process of a record does now or did last (oddrank/trace/ranks.py). "
        "Raises OddrankError if it is no record.");
  m.def("trace_history", &history, py::arg("path"), py::arg("last"),
        "Returns (process, the last events and marks, why parts could not be read). An event is "
        "(ns, tid, kind, (function, file, line), source hash, mark); its kind is mark, call, "
        "resume, line, return, yield, unwind, throw, gap or level (the function is recorded at the "
        "level `mark` from here on).");
  m.def(
      "trace_slim",
      [](const std::string& path) {
        std::string made;
        {
          const WithoutGil unlocked;
          made = trace::slim_record(trace::RecordFile(path));
        }
        return py::bytes(made);
      },
      py::arg("path"),
      "Returns a small copy of a record (csrc/trace/read/slim.hpp), of which trace_snapshot says "
      "what it says of the record. Raises OddrankError if it is no record.");
  m.attr("TRACE_MAGIC") = py::bytes(trace::kMagic, sizeof trace::kMagic);
  m.attr("TRACE_LARGEST") = trace::kLargestFile;
  m.def("trace_source_hash", &trace::source_hash, py::arg("path"), py::call_guard<WithoutGil>(),
        "Returns the hash that a record keeps of a source file; 0 if it can't be read.");
  m.def(
      "trace_kernel_states", &kernel_states, py::arg("ids"),
      "Returns (state as in /proc or '', ticks of CPU time, of a zombie the status as os.waitpid() "
      "gives it, its start in ticks since boot) of each process or thread.");
  m.def("trace_collectives", &collectives_of, py::arg("path"),
        "Returns the collectives of a record in the order of issue: (thread, group, sequence or "
        "None, op, bytes, \"open\", \"ended\" or \"issued\", begin and end as wall-clock ns or "
        "None, sizes). group: (name, back end, description, size, own rank or None, ranks as "
        "((first, step, count), ...)). sizes: (data type, bytes in, bytes out, peer, tag, root, "
        "failed), "
        "None where unknown.");
  py::class_<trace::Export>(
      m, "TraceExport",
      "Turns a record into events of the Trace Event Format. One thread at a time.")
      .def(py::init<const std::string&>(), py::arg("path"), py::call_guard<WithoutGil>(),
           "Raises OddrankError if it is no record.")
      .def_property_readonly("facts", &facts,
                             "The process, what the record lacks, begin_ns (None: not known), "
                             "clocks: [(ticks, monotonic ns, wall-clock ns)].")
      .def("start", &start, py::arg("process_id"), py::arg("origin_ns"), py::arg("clocks"),
           py::arg("lines"), py::call_guard<WithoutGil>(),
           "Starts the export. clocks: those in the facts of all records of its boot. Returns "
           "False if the record's ticks can't be converted to times.")
      .def("chunk", &chunk,
           "Returns the next MiB of text, each event after a comma; empty at the end.")
      .def_property_readonly("events", &trace::Export::events)
      .def_property_readonly("trouble",
                             [](const trace::Export& record) { return text(record.trouble()); });
  m.def("trace_stats", &stats, py::arg("path"), py::arg("most"),
        "Returns how much a process has recorded and lost, and its busiest code: (function, file, "
        "line, events, calls, seconds, own seconds). Raises OddrankError if it is no record.");
}

}  // namespace oddrank
