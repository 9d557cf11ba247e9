// Binds what happens in the process that records: arming, and the text of NicerTrace.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "os/cpython.hpp"
#include "os/error.hpp"
#include "os/proc.hpp"
#include "os/to_python.hpp"
#include "trace/format/format.hpp"
#include "trace/hooks/tracer.hpp"
#include "trace/nicer/text.hpp"
#include "trace/read/records.hpp"
#include "trace/torch/collectives.hpp"
#include "trace/write/record_files.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

using trace::ArmOptions;
using trace::FedEvent;
using trace::Filter;
using trace::TextQueue;
using trace::TextWriter;
using trace::Tracer;

void disarm() {
  Tracer& tracer = Tracer::make();
  trace::the_hook().disarm();
  tracer.stop();
}

std::string arm(const std::vector<std::string>& bases, const std::string& job, std::size_t bytes,
                std::tuple<int, int, int, int> place, bool is_child, const std::string& host,
                const std::string& arguments,
                const std::vector<std::pair<std::string, std::string>>& rules,
                std::vector<std::string> stdlib, std::vector<std::string> site, double budget) {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "oddrank records the main interpreter only: call arm() there");
    throw py::error_already_set();
  }
  if (!trace::cpython::kHasGil) {
    throw Error("a Python without a GIL cannot be recorded yet: use its build with the GIL");
  }
  if (!trace::cpython::kKnown) {
    throw Error("oddrank records CPython 3.10 to 3." + std::to_string(trace::kNewestPython & 0xff) +
                ", and this Python is newer: update oddrank");
  }
  std::vector<trace::Rule> made;
  for (const auto& [package, name] : rules) {
    const auto level = trace::level_named(name);
    if (!level) throw Error("packages: " + name + " is none of off, where, calls, lines");
    made.push_back({package, *level});
  }
  // What a process that is no rank of several has spawned may be the ranks: they need the room.
  const bool is_worker = is_child && std::get<2>(place) > 1;
  ArmOptions options{bases, job, is_worker ? trace::kChildBytes : bytes, budget, {}};
  std::tie(options.process.rank, options.process.local_rank, options.process.world,
           options.process.node) = place;
  options.process.is_child = is_child ? 1 : 0;
  options.process.python = trace::cpython::kVersion;
  options.process.host = host;
  options.process.job = job;
  options.process.hook = trace::the_hook().name;
  options.process.arguments = arguments;
  Tracer::make().start(std::move(options),
                       Filter(std::move(made), {std::move(stdlib), std::move(site)}));
  if (!trace::the_hook().arm()) {
    const py::error_already_set error;
    disarm();
    throw Error(std::string("cannot hook into Python: ") + error.what());
  }
  return Tracer::make().path();
}

const trace::CollectiveSink& collective_sink() {
  Tracer::make();  // here, under the GIL: threads that issue collectives only read it
  if (trace::Recorder* recorder = Tracer::current()) recorder->note_collectives();
  return trace::recording_sink([]() noexcept { return Tracer::current(); });
}

const trace::CollectiveSink& sink() {
  static const trace::CollectiveSink& made = collective_sink();
  return made;
}

// Calls of one process group that differ only in sizes and partner; torch's own hooks tell of them,
// in Python.
class HookedCalls {
 public:
  // Name, back end, description, ranks, size and own rank.
  using Group = std::tuple<std::string, std::string, std::string, std::vector<std::uint64_t>,
                           std::uint32_t, std::uint32_t>;

  HookedCalls(Group group, std::string operation, std::uint8_t role, std::uint8_t side,
              std::string_view type)
      : group_(std::move(group)), operation_(std::move(operation)) {
    const auto& [name, backend, text, ranks, size, own] = group_;
    call_ = {.group = {name, backend, text, ranks, size, own,
                       ranks.empty() && std::string_view(text) == "default_pg"},
             .operation = operation_,
             .type = trace::type_named(type),
             .role = static_cast<trace::Role>(role),
             .side = static_cast<trace::Side>(side)};
  }
  HookedCalls(const HookedCalls&) = delete;  // call_ refers to its strings
  HookedCalls& operator=(const HookedCalls&) = delete;

  // Returns a ticket; 0: nothing records. partner < 0: none.
  std::uint64_t begin(std::uint64_t put, std::uint64_t take, std::int64_t partner) const {
    trace::CollectiveCall call = call_;
    const bool is_output = call.side == trace::Side::kOutput;
    const bool is_message = call.role == trace::Role::kSend || call.role == trace::Role::kRecv;
    call.bytes = is_output ? take : put;
    call.other = is_output ? put : take;
    if (is_message) call.other = trace::kNoTag;
    call.tid = thread_id();
    if (partner >= 0) call.partner = static_cast<std::uint32_t>(partner);
    return sink().begin(call);
  }

  // Notes how long such a call took on its device; times are nanoseconds.
  void timed(std::optional<std::uint64_t> sequence, std::uint64_t bytes, std::uint64_t begin,
             std::uint64_t time) const {
    trace::CollectiveCall call = call_;
    call.bytes = bytes;
    if (trace::Recorder* recorder = Tracer::current()) {
      recorder->note_timed(call, sequence.value_or(trace::kNoSequence), begin, time);
    }
  }

 private:
  const Group group_;
  const std::string operation_;
  trace::CollectiveCall call_;
};

void bind_collectives(py::module_& m) {
  m.def(
      "trace_collective_sink",
      [] { return py::capsule(&collective_sink(), trace::CollectiveSink::kCapsule); },
      "For _torch.start_collectives(): writes into this process's record file while it is "
      "armed.");
  m.def(
      "trace_unseen",
      [](const py::function& function) {
        PyObject* made = trace::unseen(function.ptr());
        if (made == nullptr) throw py::error_already_set();
        return py::reinterpret_steal<py::function>(made);
      },
      py::arg("function"), "Takes one argument. Up to 3.11 no profiler or tracer sees its calls.");
  m.def(
      "trace_quiet_imports",
      [](const py::function& function) {
        PyObject* made = trace::quiet_imports(function.ptr());
        if (made == nullptr) throw py::error_already_set();
        return py::reinterpret_steal<py::function>(made);
      },
      py::arg("function"),
      "For importlib's _call_with_frames_removed: up to 3.11 installed modules are imported "
      "without events, unless there is no budget.");
  py::class_<HookedCalls>(m, "TraceCalls", "Calls that Python tells of, and that are alike.")
      .def(
          py::init<HookedCalls::Group, std::string, std::uint8_t, std::uint8_t, std::string_view>(),
          py::arg("group"), py::arg("operation"), py::arg("role"), py::arg("side"), py::arg("type"),
          "group: name, back end, description, ranks, size and own rank.")
      .def("begin", &HookedCalls::begin, py::arg("put"), py::arg("take"), py::arg("partner"),
           "Writes that one begins. put, take: bytes; partner: a rank in the group, -1: none. "
           "Returns a ticket, 0 where nothing records.")
      .def("timed", &HookedCalls::timed, py::arg("sequence"), py::arg("bytes"), py::arg("begin_ns"),
           py::arg("ns"), "Notes how long one took on its device, and when it was issued.");
  m.def(
      "trace_collective_numbered",
      [](std::uint64_t ticket, std::uint64_t number) { sink().numbered(ticket, number); },
      py::arg("ticket"), py::arg("number"), "Call it before trace_collective_closed().");
  m.def(
      "trace_collective_closed",
      [](std::uint64_t ticket, bool failed) { (failed ? sink().failed : sink().end)(ticket); },
      py::arg("ticket"), py::arg("failed"), "Call this or the next one, once.");
  m.def(
      "trace_collective_issued", [](std::uint64_t ticket) { sink().issued(ticket); },
      py::arg("ticket"), "A device goes on with it; its end will not be told.");
}

// Most events per call. Small, so that waiting threads see progress even if stdout is read slowly.
constexpr std::size_t kPiece = 1 << 12;

TextWriter writer(bool says, bool counts, bool callers, std::optional<std::int64_t> start_ns,
                  std::uint32_t pid, std::string script, std::vector<std::string> roots) {
  return TextWriter({says, counts, callers, start_ns, pid, std::move(script), std::move(roots)});
}

// Looks up the code and source that the next batch needs.
void learn(TextWriter& writer, const TextQueue& queue, const py::function& lines_of) {
  for (const std::string& wanted : writer.learn(*queue.file(), queue.batch())) {
    writer.add_source(wanted, lines_of(text(wanted)).cast<std::vector<std::string>>());
  }
}

// Returns None if there is nothing more.
py::object next_text(TextWriter& writer, const py::function& lines_of) {
  TextQueue* queue = TextQueue::current();
  if (queue != nullptr && queue->batch().empty()) {
    queue->next_batch();
    if (!queue->batch().empty()) learn(writer, *queue, lines_of);
    queue = TextQueue::current();  // lines_of is Python: the run may have ended
  }
  if (queue == nullptr || queue->batch().empty()) return py::none();
  const auto clock = trace::clock_of(*queue->file());
  const std::vector<FedEvent> events = queue->take(kPiece);
  std::string made;
  {
    const WithoutGil unlocked;
    writer.write(events, clock, made);
  }
  return text(made);
}

py::list line_counts(const TextWriter& writer) {
  py::list made;
  for (const auto& [file, line, count] : writer.lines()) append(made, {file, line, count});
  return made;
}

py::list called(const TextWriter& writer) {
  py::list made;
  for (const auto& [file, name] : writer.called()) append(made, {file, name});
  return made;
}

py::list callers(const TextWriter& writer) {
  py::list made;
  for (const auto& [caller, function] : writer.callers()) {
    append(made,
           {tuple_of({caller.first, caller.second}), tuple_of({function.first, function.second})});
  }
  return made;
}

void bind_nicer(py::module_& m) {
  py::class_<TextWriter>(m, "TraceText", "Events as NicerTrace prints and counts them.")
      .def(py::init(&writer), py::arg("says"), py::arg("counts"), py::arg("callers"),
           py::arg("start_ns"), py::arg("pid"), py::arg("script"), py::arg("roots"))
      .def("next", &next_text, py::arg("lines_of"),
           "Returns the text of the oldest events not yet taken, None if there are none. "
           "lines_of: path -> its source lines.")
      .def("lines", &line_counts, "(file, line, count).")
      .def("called", &called, "(file, qualified name).")
      .def("callers", &callers, "(caller, called) as in called().");
  m.def("trace_text_begin", &TextQueue::begin,
        "Keeps all events from now on for TraceText.next().");
  m.def("trace_text_printer", &TextQueue::set_printer, py::arg("tid"),
        "Sets the native id of the thread that calls next(); it is not shown. 0: there is none.");
  m.def(
      "trace_text_wait",
      [](unsigned ms) { TextQueue::wait_for_work(std::chrono::milliseconds(ms)); }, py::arg("ms"),
      "Waits until there are many events, or trace_text_wake(), or so long.");
  m.def("trace_text_wake", &TextQueue::wake);
  m.def(
      "trace_text_collect",
      [] {
        if (TextQueue* queue = TextQueue::current()) queue->collect();
      },
      "Collects what the threads have recorded so far.");
  m.def("trace_text_close", &TextQueue::close, "Collects a last time and stops.");
  m.def("trace_text_end", &TextQueue::end, "Ends the run; events not taken are lost.");
  m.def("trace_text_forked", &TextQueue::forget_parent,
        "In a forked child: leaves the parent's events to the parent.");
}

}  // namespace

void bind_trace(py::module_& m) {
  m.def("trace_arm", &arm, py::arg("folders"), py::arg("job"), py::arg("bytes"), py::arg("place"),
        py::arg("is_child"), py::arg("host"), py::arg("arguments"), py::arg("rules"),
        py::arg("stdlib"), py::arg("site"), py::arg("budget") = 0.0,
        "Makes the record file of this process, or continues it, and hooks into the interpreter. "
        "folders: the first with room is used; bytes: size of a rank's file; place: "
        "(rank, local rank, world, node); rules: (package, level), level one of off, where, calls, "
        "lines; stdlib, site: folders with a slash at their end; budget: the share of CPU time "
        "that recording may take, 0: no limit. Returns the file's path.");
  m.def(
      "trace_armed", [] { return Tracer::current() != nullptr; }, "Whether this process records.");
  m.def(
      "trace_pause_sampler", [] { Tracer::make().sampler().pause(); },
      "Ends the thread that samples: before a fork, and before Python finalizes.");
  m.def(
      "trace_resume_sampler", [] { Tracer::make().sampler().resume(); },
      "Allows a thread that samples again, once per trace_pause_sampler().");
  m.def("trace_disarm", &disarm, "Removes the hooks; the record stays.");
  m.def(
      "trace_script_ended",
      [](const std::string& raised, const std::string& message, const std::string& at) {
        trace::Recorder* recorder = Tracer::made();
        if (recorder != nullptr) recorder->note_script_ended(raised, message, at);
      },
      py::arg("raised"), py::arg("message"), py::arg("at"),
      "Notes in the record that the script has ended, by an exception of this type, with this "
      "first line of its message, or ('') by none; at: its line, function and file, in lines.");
  m.def(
      "trace_thread_raised",
      [](const std::string& raised, const std::string& message, const std::string& at) {
        trace::Recorder* recorder = Tracer::made();
        if (recorder != nullptr) recorder->note_thread_raised(raised, message, at);
      },
      py::arg("raised"), py::arg("message"), py::arg("at"),
      "Notes the first exception that ended a thread; as trace_script_ended(), `at` with a line "
      "before: `thread NAME`.");
  m.def("trace_remove_dead_jobs", &trace::remove_dead_jobs, py::arg("base"), py::arg("own"),
        py::arg("keep"), py::call_guard<WithoutGil>(),
        "Removes jobs of a base folder whose processes have all ended, except the last `keep` of "
        "several ranks, the last `keep` of one rank, and `own`; returns their number.");
  m.def(
      "trace_object",
      []() -> py::object {
        Tracer::make();
        const auto make = trace::the_hook().trace_object;
        PyObject* object = make == nullptr ? nullptr : make();
        return object == nullptr ? py::none() : py::reinterpret_steal<py::object>(object);
      },
      "For threading.settrace(): hooks the thread that calls it. None if threads need no hook.");
  m.def(
      "trace_check", [](bool on) { Tracer::make().check_every_event(on); }, py::arg("on"),
      "For tests: compares the shadow stack with the frames after every event.");
  m.def(
      "trace_check_result", [] { return Tracer::make().check_result(); },
      "Returns (events compared, stacks that differed from the frames).");
  bind_collectives(m);
  bind_nicer(m);
}

}  // namespace oddrank
