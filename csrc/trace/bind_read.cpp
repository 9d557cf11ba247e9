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
#include "trace/read/snapshot.hpp"

namespace oddrank {
namespace {

using trace::text_of;
using trace::value_of;

// begin_ns: the time of arm(); None: not known.
py::dict process_dict(const trace::Process& process, const trace::Clock& clock) {
  return dict_of(
      {"begin_ns"_k = clock.begin(), "pid"_k = process.pid, "parent_pid"_k = process.parent_pid,
       "start_time"_k = process.start_time, "boot_id"_k = process.boot_id, "rank"_k = process.rank,
       "local_rank"_k = process.local_rank, "world"_k = process.world, "node"_k = process.node,
       "python"_k = process.python, "is_child"_k = process.is_child != 0, "host"_k = process.host,
       "job"_k = process.job, "hook"_k = process.hook, "arguments"_k = process.arguments});
}

constexpr std::array kLives{"unknown", "alive", "dead"};
constexpr std::array kEnds{"no word", "ending", "exited"};
constexpr std::array kKinds{"mark",   "call",  "resume", "line",  "return", "yield",
                            "unwind", "throw", "gap",    "level", "sampled"};

// Returns null (None in Python) for a value that no record of this version has.
template <std::size_t kCount>
const char* name_of(const std::array<const char*, kCount>& names, auto value) {
  const auto at = static_cast<std::size_t>(value);
  return at < kCount ? names[at] : nullptr;
}

// A frame is (function, file, line, level, ns): the last two are None unless the line is unknown
// since the code is or was recorded at this level.
py::dict thread_dict(const trace::ThreadNow& now, const trace::Clock& clock) {
  py::list stack;
  for (const trace::Frame& frame : now.stack) {
    const bool changed = frame.now.is_changed();
    append(stack, {frame.function, frame.file, frame.line,
                   changed ? name_of(trace::kLevelNames, frame.now.level()) : nullptr,
                   changed ? clock.realtime_ns(frame.now.since()) : trace::Time()});
  }
  return dict_of({"tid"_k = now.thread.tid, "name"_k = now.thread.name,
                  "ended"_k = now.thread.state == trace::ThreadState::kEnded,
                  "depth"_k = now.thread.depth, "torn"_k = now.thread.torn,
                  "events"_k = now.thread.events, "last_ns"_k = now.last,
                  "sampled_ns"_k = now.sampled, "stack"_k = stack});
}

// (name, back end, description, size, own rank, ((first, step, count), ...)).
py::tuple group_tuple(const trace::ProcessGroup* group) {
  if (group == nullptr) return tuple_of({"", "", "", 0, Value(), py::tuple()});
  const py::tuple runs = list_of(group->runs, [](const trace::RankRun& run) {
    return tuple_of({run.first, run.step, run.count});
  });
  const Value own = group->own == trace::kNoRank ? Value() : Value(group->own);
  return tuple_of({group->name, group->backend, group->text, group->size, own, runs});
}

// Makes a tuple of a collective, and a Python object of each name or group once: many collectives
// have the same ones.
class CollectiveTuples {
 public:
  // A null clock: times are of the wall clock already.
  CollectiveTuples(const trace::Dictionary& names, const trace::Clock* clock)
      : names_(names), clock_(clock) {}
  py::object group(std::uint32_t id) {
    py::object& made = groups_[id];
    if (!made) made = group_tuple(names_.group(id));
    return made;
  }
  py::tuple of(const trace::Collective& c) {
    py::object& operation = operations_[c.operation];
    if (!operation) operation = text(names_.operation(c.operation));
    // Global ranks.
    std::optional<std::uint32_t> partner, peer, root;
    std::optional<std::int64_t> tag;
    const trace::ProcessGroup* known = names_.group(c.group);
    if (known != nullptr && c.partner != trace::kNoRank) partner = known->global(c.partner);
    if (is_pair(c.role)) {
      peer = partner;
      if (c.other != trace::kNoTag) tag = static_cast<std::int64_t>(c.other);
    } else if (c.role == trace::Role::kRoot) {
      root = partner;
    }
    return tuple_of({c.tid, group(c.group), c.known_sequence(), operation, c.bytes,
                     trace::name_of(c.state), time(c.begin), time(c.end),
                     trace::name_of_type(c.type), c.input(), c.output(), peer, tag, root, c.failed,
                     c.number});
  }

 private:
  trace::Time time(std::optional<std::uint64_t> ticks) const {
    return clock_ == nullptr ? trace::Time(ticks) : clock_->realtime_ns(ticks);
  }
  const trace::Dictionary& names_;
  const trace::Clock* clock_;
  std::map<std::uint32_t, py::object> groups_, operations_;  // by id
};

// Opens the record of a file, or reads `content`, which must outlive it; then `path` is only shown.
trace::RecordFile opened(const std::string& path, const std::optional<std::string_view>& content) {
  if (!content) return trace::RecordFile(path);
  const auto* data = reinterpret_cast<const unsigned char*>(content->data());
  return trace::RecordFile(std::span<const unsigned char>(data, content->size()), path);
}

py::dict snapshot(const std::string& path, const std::optional<std::string_view>& content) {
  const auto now = without_gil([&] { return trace::read_snapshot(opened(path, content)); });
  CollectiveTuples tuples(*now.names, &now.clock);
  py::list threads, open, sections, groups, clocks, lowered;
  for (const auto& thread : now.threads) append(threads, thread_dict(thread, now.clock));
  for (const auto& collective : now.open) append(open, tuples.of(collective));
  for (const auto& group : now.groups) {
    append(groups, {tuples.group(group.group), group.begun, group.issued, group.ended,
                    now.clock.realtime_ns(group.last)});
  }
  for (const trace::Code& code : now.names->codes()) {
    if (!code.is_lowered()) continue;
    append(lowered, {code.qualified_name, code.file, code.first_line,
                     trace::kLevelNames[code.level_now() & 3], trace::kLevelNames[code.level & 3],
                     now.clock.realtime_ns(code.now.since())});
  }
  for (const auto& section : now.sections) {
    append(sections, {section.text, section.tid, now.clock.realtime_ns(section.tsc)});
  }
  for (const trace::ClockPicture& picture : now.clocks) {
    append(clocks, {picture.tsc, picture.monotonic_ns, picture.realtime_ns});
  }
  const trace::Header& header = *now.header;
  const py::dict lost =
      dict_of({"threads"_k = value_of(header.lost_threads), "codes"_k = value_of(header.lost_codes),
               "collectives"_k = value_of(header.lost_collectives),
               "groups"_k = value_of(header.lost_groups)});
  const bool exited = now.header.end() == trace::End::kExited;
  py::dict made = process_dict(now.process, now.clock);
  add(made, {"life"_k = name_of(kLives, now.life),
             "end"_k = name_of(kEnds, now.header.end()),
             "exit_code"_k = exited ? Value(now.header.exit_code()) : Value(),
             "raised"_k = text_of(header.raised),
             "message"_k = text_of(header.message),
             "raised_at"_k = text_of(header.raised_at),
             "disarmed"_k = value_of(header.hook_state) ==
                            static_cast<std::uint64_t>(trace::HookState::kDisarmed),
             "displaced_by"_k = text_of(header.displaced_by),
             "lost"_k = lost,
             "clocks"_k = clocks,
             "step"_k = now.header.step(),
             "step_ns"_k = now.step,
             "last_ns"_k = now.last_event,
             "gil_wanted_ns"_k = now.gil_wanted,
             "gil_asked_ns"_k = now.gil_asked,
             "sampled_since_ns"_k = now.sampled_since,
             "threads"_k = threads,
             "open"_k = open,
             "last_collective"_k = now.last ? py::object(tuples.of(*now.last)) : py::none(),
             "groups"_k = groups,
             "collectives_recorded"_k = value_of(header.collectives_since) != 0,
             "sections"_k = sections,
             "lowered"_k = lowered,
             "trouble"_k = now.trouble});
  return made;
}

py::tuple history(const std::string& path, std::size_t last,
                  const std::optional<std::string_view>& content) {
  const auto read = without_gil([&] { return trace::read_history(opened(path, content), last); });
  const py::list events = list_of(read.events, [](const auto& event) {
    return tuple_of({event.time, event.tid, name_of(kKinds, event.kind),
                     tuple_of({event.frame.function, event.frame.file, event.frame.line}),
                     event.mark});
  });
  return tuple_of({process_dict(read.process, read.clock), events, read.trouble});
}

py::list kernel_states(const std::vector<std::int64_t>& ids) {
  constexpr std::int64_t kLargest = std::numeric_limits<pid_t>::max();
  return list_of(ids, [](std::int64_t id) {
    const ProcStat stat = id > 0 && id <= kLargest ? read_stat(static_cast<pid_t>(id)) : ProcStat{};
    const std::string state(stat.state == 0 ? 0 : 1, stat.state);
    return tuple_of({state, stat.cpu_ticks, stat.wait_status, stat.start_time,
                     stat.state == 'S' ? wchan_of(static_cast<pid_t>(id)) : ""});
  });
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
  CollectiveTuples tuples(*dictionary, timed ? nullptr : &clock);
  return list_of(found, [&](const trace::Collective& one) { return tuples.of(one); });
}

bool start(trace::Export& record, std::int64_t process_id, std::int64_t origin_ns,
           const std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>& clocks,
           bool lines, const std::map<std::string, std::string, std::less<>>& operations) {
  trace::ExportOptions options{process_id, origin_ns, {}, lines, operations};
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
  m.def("trace_snapshot", &snapshot, "path"_a, "content"_a = py::none());
  m.def("trace_history", &history, "path"_a, "last"_a, "content"_a = py::none());
  m.def("trace_slim", [](const std::string& path) {
    const auto made = without_gil([&] { return trace::slim_record(trace::RecordFile(path)); });
    return py::bytes(made);
  });
  m.attr("TRACE_MAGIC") = py::bytes(trace::kMagic, sizeof trace::kMagic);
  m.attr("TRACE_LARGEST") = trace::kLargestFile;
  m.def("trace_kernel_states", &kernel_states);
  m.def("trace_collectives", &collectives_of, "path"_a, "content"_a = py::none(),
        "timed"_a = false);
  py::class_<trace::Export>(m, "TraceExport")
      .def(py::init<const std::string&>(), py::call_guard<WithoutGil>())
      .def("start", &start, py::call_guard<WithoutGil>())
      .def("chunk", &chunk)
      .def_property_readonly("events", &trace::Export::events)
      .def_property_readonly("trouble",
                             [](const trace::Export& record) { return text(record.trouble()); });
}

}  // namespace oddrank
