// Binds csrc/trace/read and export: one call per record, returns plain dicts and tuples; no logic.
#include <pybind11/stl.h>

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "os/cpython.hpp"
#include "os/proc.hpp"
#include "os/to_python.hpp"
#include "trace/export/export.hpp"
#include "trace/format/format.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/slim.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank {
namespace {

using trace::text_of;
using trace::value_of;

py::dict process_dict(const trace::Process& process) {
  return dict_of(
      {"pid"_k = process.pid, "parent_pid"_k = process.parent_pid,
       "start_time"_k = process.start_time, "boot_id"_k = process.boot_id, "rank"_k = process.rank,
       "local_rank"_k = process.local_rank, "world"_k = process.world, "node"_k = process.node,
       "python"_k = process.python, "is_child"_k = process.is_child != 0, "host"_k = process.host,
       "job"_k = process.job, "hook"_k = process.hook, "arguments"_k = process.arguments});
}

constexpr std::array kLives{"unknown", "alive", "dead"};
constexpr std::array kEnds{"no word", "ending", "exited"};
constexpr std::array kKinds{"mark",   "call",  "resume", "line",  "return", "yield",
                            "unwind", "throw", "gap",    "level", "sampled"};

// Returns null (None in Python) if the record holds an unknown value.
const char* name_of(trace::End end) {
  const auto at = static_cast<std::size_t>(end);
  return at < kEnds.size() ? kEnds[at] : nullptr;
}

std::string name_of(trace::Kind kind) {
  const auto at = static_cast<std::size_t>(kind);
  return at < kKinds.size() ? kKinds[at] : "event " + std::to_string(at);
}

// Adds whether the process is alive, how it ended, and what its record lost.
void add_state(py::dict& made, trace::Liveness life, const trace::HeaderCopy& header) {
  py::dict lost = dict_of({"threads"_k = value_of(header->lost_threads),
                           "codes"_k = value_of(header->lost_codes),
                           "collectives"_k = value_of(header->lost_collectives),
                           "groups"_k = value_of(header->lost_groups)});
  add(made,
      {"life"_k = kLives[static_cast<std::size_t>(life)], "end"_k = name_of(header.end()),
       "exit_code"_k = header.end() == trace::End::kExited ? Value(header.exit_code()) : Value(),
       "raised"_k = text_of(header->raised), "message"_k = text_of(header->message),
       "raised_at"_k = text_of(header->raised_at),
       "disarmed"_k =
           value_of(header->hook_state) == static_cast<std::uint64_t>(trace::HookState::kDisarmed),
       "displaced_by"_k = text_of(header->displaced_by), "lost"_k = lost});
}

py::tuple frame_tuple(const trace::Frame& frame) {
  return tuple_of({frame.function, frame.file, frame.line});
}

// (function, file, line, level, ns): the last two are None unless the line is unknown since the
// code is or was recorded at this level.
py::list stack_of(const trace::ThreadNow& now) {
  py::list stack;
  for (std::size_t i = 0; i < now.stack.size(); ++i) {
    const trace::Frame& frame = now.stack[i];
    const char* level = nullptr;
    if (frame.now.is_changed()) level = trace::kLevelNames[static_cast<int>(frame.now.level())];
    append(stack, {frame.function, frame.file, frame.line, level, now.since[i]});
  }
  return stack;
}

// [(function, file, first line, level, the level that was asked for, ns)].
py::list lowered_list(const std::vector<trace::Lowered>& lowered) {
  py::list made;
  for (const trace::Lowered& one : lowered) {
    append(made, {one.frame.function, one.frame.file, one.frame.line,
                  trace::kLevelNames[static_cast<int>(one.level)],
                  trace::kLevelNames[static_cast<int>(one.wanted)], one.since});
  }
  return made;
}

py::dict thread_dict(const trace::ThreadNow& now) {
  return dict_of({"tid"_k = now.thread.tid, "name"_k = now.thread.name,
                  "ended"_k = now.thread.state == trace::ThreadState::kEnded,
                  "depth"_k = now.thread.depth, "torn"_k = now.thread.torn,
                  "events"_k = now.thread.events, "last_ns"_k = now.last,
                  "sampled_ns"_k = now.sampled, "stack"_k = stack_of(now)});
}

// (name, back end, description, size, own rank, ((first, step, count), ...)).
py::tuple group_tuple(const trace::ProcessGroup* group) {
  if (group == nullptr) return tuple_of({"", "", "", 0, Value(), py::tuple()});
  py::list runs;
  for (const trace::RankRun& run : group->runs) {
    append(runs, {run.first, run.step, run.count});
  }
  const Value own = group->own == trace::kNoRank ? Value() : Value(group->own);
  return tuple_of({group->name, group->backend, group->text, group->size, own, py::tuple(runs)});
}

// Makes a Python object of each name or group once: many collectives have the same ones.
class CollectiveNames {
 public:
  explicit CollectiveNames(const trace::Dictionary& names) : names_(names) {}
  const trace::Dictionary& dictionary() const noexcept { return names_; }
  py::object group(std::uint32_t id) {
    py::object& made = groups_[id];
    if (!made) made = group_tuple(names_.group(id));
    return made;
  }
  py::object operation(std::uint32_t id) {
    py::object& made = operations_[id];
    if (!made) made = text(names_.operation(id));
    return made;
  }

 private:
  const trace::Dictionary& names_;
  std::map<std::uint32_t, py::object> groups_, operations_;  // by id
};

// (data type, bytes in, bytes out, peer, tag, root, failed), with global ranks; None: none, or
// unknown.
py::tuple sizes_tuple(const trace::Collective& c, const trace::Dictionary& names) {
  const trace::ProcessGroup* group = names.group(c.group);
  std::optional<std::uint32_t> partner, peer, root;
  std::optional<std::int64_t> tag;
  if (group != nullptr && c.partner != trace::kNoRank) partner = group->global(c.partner);
  if (is_pair(c.role)) {
    peer = partner;
    if (c.other != trace::kNoTag) tag = static_cast<std::int64_t>(c.other);
  } else if (c.role == trace::Role::kRoot) {
    root = partner;
  }
  return tuple_of({trace::name_of_type(c.type), c.input(), c.output(), peer, tag, root, c.failed});
}

py::dict collective_dict(const trace::Collective& c, const trace::Clock& clock,
                         CollectiveNames& names) {
  return dict_of({"operation"_k = names.operation(c.operation), "group"_k = names.group(c.group),
                  "sizes"_k = sizes_tuple(c, names.dictionary()), "sequence"_k = c.known_sequence(),
                  "bytes"_k = c.bytes, "tid"_k = c.tid, "number"_k = c.number,
                  "state"_k = trace::name_of(c.state), "begin_ns"_k = clock.realtime_ns(c.begin),
                  "end_ns"_k = clock.realtime_ns(c.end)});
}

// Opens the record of a file, or reads `content`, which must outlive it; then `path` is only shown.
trace::RecordFile opened(const std::string& path, const std::optional<std::string_view>& content) {
  if (!content) return trace::RecordFile(path);
  const auto* data = reinterpret_cast<const unsigned char*>(content->data());
  return trace::RecordFile(std::span<const unsigned char>(data, content->size()), path);
}

py::dict snapshot(const std::string& path, const std::optional<std::string_view>& content) {
  const auto now = without_gil([&] { return trace::read_snapshot(opened(path, content)); });
  CollectiveNames names(*now.names);
  py::list threads, open, sections, groups;
  for (const auto& thread : now.threads) append(threads, thread_dict(thread));
  for (const auto& collective : now.open)
    append(open, collective_dict(collective, now.clock, names));
  for (const auto& group : now.groups) {
    append(groups, {names.group(group.group), group.begun, group.issued, group.ended,
                    now.clock.realtime_ns(group.last)});
  }
  for (const auto& section : now.sections) {
    append(sections, {section.text, section.tid, now.clock.realtime_ns(section.tsc)});
  }
  py::dict made = process_dict(now.process);
  add_state(made, now.life, now.header);
  add(made,
      {"step"_k = now.header.step(), "step_ns"_k = now.step, "last_ns"_k = now.last_event,
       "gil_wanted_ns"_k = now.gil_wanted, "sampled_since_ns"_k = now.sampled_since,
       "threads"_k = threads, "open"_k = open,
       "last_collective"_k =
           now.last ? collective_dict(*now.last, now.clock, names) : py::object(py::none()),
       "groups"_k = groups, "collectives_recorded"_k = value_of(now.header->collectives_since) != 0,
       "sections"_k = sections, "lowered"_k = lowered_list(now.lowered),
       "trouble"_k = now.trouble});
  return made;
}

py::tuple history(const std::string& path, std::size_t last,
                  const std::optional<std::string_view>& content) {
  const auto read = without_gil([&] { return trace::read_history(opened(path, content), last); });
  py::list events;
  for (const auto& event : read.events) {
    append(events, {event.time, event.tid, name_of(event.kind), frame_tuple(event.frame),
                    event.source_hash, event.mark});
  }
  return tuple_of({process_dict(read.process), events, read.trouble});
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
    append(states, {state, stat.cpu_ticks, stat.wait_status, stat.start_time,
                    stat.state == 'S' ? wchan_of(static_cast<pid_t>(id)) : ""});
  }
  return states;
}

py::list collectives_of(const std::string& path, const std::optional<std::string_view>& content,
                        bool timed) {
  std::vector<trace::Collective> found;
  std::optional<trace::Dictionary> dictionary;
  trace::Clock clock;
  {
    const WithoutGil unlocked;
    const trace::RecordFile file = opened(path, content);
    found = timed ? trace::read_timed(file) : trace::read_joined_collectives(file);
    // After the collectives, so that every id is there.
    dictionary.emplace(file);
    clock = trace::clock_of(file);
  }
  const auto time = [&clock, timed](std::optional<std::uint64_t> ticks) {
    return timed ? trace::Time(ticks) : clock.realtime_ns(ticks);
  };
  py::list tuples;
  CollectiveNames names(*dictionary);
  for (const trace::Collective& c : found) {
    append(tuples,
           {c.tid, names.group(c.group), c.known_sequence(), names.operation(c.operation), c.bytes,
            trace::name_of(c.state), time(c.begin), time(c.end), sizes_tuple(c, *dictionary)});
  }
  return tuples;
}

py::dict facts(const trace::Export& record) {
  const trace::ExportFacts found = record.facts();
  py::list clocks;
  for (const trace::ClockPicture& picture : found.clocks) {
    append(clocks, {picture.tsc, picture.monotonic_ns, picture.realtime_ns});
  }
  py::dict made = process_dict(found.process);
  add_state(made, found.life, found.header);
  add(made, {"begin_ns"_k = found.begin, "clocks"_k = clocks});
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
  const auto made = without_gil([&] { return record.chunk(); });
  return py::bytes(made);
}

}  // namespace

void bind_trace_read(py::module_& m) {
  m.def("trace_lines", &lines, "version_hex"_a, "linetable"_a, "first_line"_a, "offsets"_a,
        "Returns the lines at these offsets (bytes) of a code object; None if there is none, "
        "and for a table that no known CPython writes.");
  m.def("trace_snapshot", &snapshot, "path"_a, "content"_a = py::none(),
        "Returns what the process of a record does now or did last (oddrank/trace/ranks.py). "
        "content: the record, if it is in no file. Raises OddrankError if it is no record.");
  m.def("trace_history", &history, "path"_a, "last"_a, "content"_a = py::none(),
        "Returns (process, the last events and marks, why parts could not be read). An event is "
        "(ns, tid, kind, (function, file, line), source hash, mark); its kind is mark, call, "
        "resume, line, return, yield, unwind, throw, gap or level (the function is recorded at the "
        "level `mark` from here on).");
  m.def(
      "trace_slim",
      [](const std::string& path) {
        const auto made = without_gil([&] { return trace::slim_record(trace::RecordFile(path)); });
        return py::bytes(made);
      },
      "path"_a,
      "Returns a small copy of a record (csrc/trace/read/slim.hpp), of which trace_snapshot says "
      "what it says of the record. Raises OddrankError if it is no record.");
  m.attr("TRACE_MAGIC") = py::bytes(trace::kMagic, sizeof trace::kMagic);
  m.attr("TRACE_LARGEST") = trace::kLargestFile;
  m.def("trace_source_hash", &trace::source_hash, "path"_a, py::call_guard<WithoutGil>(),
        "Returns the hash that a record keeps of a source file; 0 if it can't be read.");
  m.def(
      "trace_kernel_states", &kernel_states, "ids"_a,
      "Returns (state as in /proc or '', ticks of CPU time, of a zombie the status as os.waitpid() "
      "gives it, its start in ticks since boot, the kernel's function in which it sleeps or \"\") "
      "of each process or thread.");
  m.def("trace_collectives", &collectives_of, "path"_a, "content"_a = py::none(), "timed"_a = false,
        "Returns the collectives of a record in the order of issue: (thread, group, sequence or "
        "None, op, bytes, \"open\", \"ended\" or \"issued\", begin and end as wall-clock ns or "
        "None, sizes). group: (name, back end, description, size, own rank or None, ranks as "
        "((first, step, count), ...)). sizes: (data type, bytes in, bytes out, peer, tag, root, "
        "failed), "
        "None where unknown. timed: instead those whose time on a device is known, \"timed\", from "
        "when they were issued until as much later.");
  py::class_<trace::Export>(
      m, "TraceExport",
      "Turns a record into events of the Trace Event Format. One thread at a time.")
      .def(py::init<const std::string&>(), "path"_a, py::call_guard<WithoutGil>(),
           "Raises OddrankError if it is no record.")
      .def_property_readonly("facts", &facts,
                             "The process, what the record lacks, begin_ns (None: not known), "
                             "clocks: [(ticks, monotonic ns, wall-clock ns)].")
      .def("start", &start, "process_id"_a, "origin_ns"_a, "clocks"_a, "lines"_a,
           py::call_guard<WithoutGil>(),
           "Starts the export. clocks: those in the facts of all records of its boot. Returns "
           "False if the record's ticks can't be converted to times.")
      .def("chunk", &chunk,
           "Returns the next MiB of text, each event after a comma; empty at the end.")
      .def_property_readonly("events", &trace::Export::events)
      .def_property_readonly("trouble",
                             [](const trace::Export& record) { return text(record.trouble()); });
}

}  // namespace oddrank
