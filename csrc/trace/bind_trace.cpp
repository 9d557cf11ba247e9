// Binds what happens in the process that records.
#include <pybind11/stl.h>

#include "os/cpython.hpp"
#include "os/error.hpp"
#include "os/proc.hpp"
#include "os/to_python.hpp"
#include "trace/cpython/code.hpp"
#include "trace/format/format.hpp"
#include "trace/hooks/tracer.hpp"
#include "trace/read/records.hpp"
#include "trace/torch/collectives.hpp"
#include "trace/write/record_files.hpp"

namespace oddrank {
namespace {

using trace::ArmOptions;
using trace::Filter;
using trace::Tracer;

void disarm() {
  Tracer& tracer = Tracer::make();
  trace::hook::disarm();
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
  // Children of a process that is no rank of several may be the ranks: they need the room.
  const bool is_worker = is_child && std::get<2>(place) > 1;
  ArmOptions options{bases, job, is_worker ? trace::kChildBytes : bytes, budget, {}};
  std::tie(options.process.rank, options.process.local_rank, options.process.world,
           options.process.node) = place;
  options.process.is_child = is_child ? 1 : 0;
  options.process.python = trace::cpython::kVersion;
  options.process.host = host;
  options.process.job = job;
  options.process.hook = trace::hook::kName;
  options.process.arguments = arguments;
  Tracer::make().start(std::move(options),
                       Filter(std::move(made), {std::move(stdlib), std::move(site)}));
  if (!trace::hook::arm()) {
    const py::error_already_set error;
    disarm();
    throw Error(std::string("cannot hook into Python: ") + error.what());
  }
  return Tracer::make().path();
}

const trace::CollectiveSink& sink() {
  return trace::recording_sink([]() noexcept { return Tracer::current(); });
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
             .facts = {.type = trace::type_named(type),
                       .role = static_cast<trace::Role>(role),
                       .side = static_cast<trace::Side>(side)}};
  }
  HookedCalls(const HookedCalls&) = delete;  // call_ refers to its strings
  HookedCalls& operator=(const HookedCalls&) = delete;

  // Returns a ticket; 0: nothing records. partner < 0: none.
  std::uint64_t begin(std::uint64_t put, std::uint64_t take, std::int64_t partner) const {
    trace::CollectiveCall call = call_;
    trace::CollectiveFacts& facts = call.facts;
    const bool is_output = facts.side == trace::Side::kOutput;
    facts.bytes = is_output ? take : put;
    facts.other = is_output ? put : take;
    if (is_pair(facts.role)) facts.other = trace::kNoTag;
    facts.tid = thread_id();
    if (partner >= 0) facts.partner = static_cast<std::uint32_t>(partner);
    return sink().begin(call);
  }

  // Notes how long such a call took on its device; times are nanoseconds.
  void timed(std::optional<std::uint64_t> sequence, std::uint64_t bytes, std::uint64_t begin,
             std::uint64_t time) const {
    trace::Recorder* recorder = Tracer::current();
    if (recorder == nullptr) return;
    trace::CollectiveFacts facts = recorder->facts_of(call_);
    facts.bytes = bytes;
    facts.sequence = sequence.value_or(trace::kNoSequence);
    recorder->collectives().note_timed(facts, begin, time);
  }

 private:
  const Group group_;
  const std::string operation_;
  trace::CollectiveCall call_;
};

void bind_collectives(py::module_& m) {
  m.def("trace_collective_sink", [] {
    Tracer::make();  // here, under the GIL: threads that issue collectives only read it
    if (trace::Recorder* recorder = Tracer::current()) recorder->note_collectives();
    return py::capsule(&sink(), trace::CollectiveSink::kCapsule);
  });
  for (const auto& [name, wrap] : {std::pair("trace_unseen", &trace::unseen),
                                   std::pair("trace_quiet_imports", &trace::quiet_imports)}) {
    m.def(name, [wrap = wrap](const py::function& function) {
      PyObject* made = wrap(function.ptr());
      if (made == nullptr) throw py::error_already_set();
      return py::reinterpret_steal<py::function>(made);
    });
  }
  py::class_<HookedCalls>(m, "TraceCalls")
      .def(
          py::init<HookedCalls::Group, std::string, std::uint8_t, std::uint8_t, std::string_view>())
      .def("begin", &HookedCalls::begin)
      .def("timed", &HookedCalls::timed);
  m.def("trace_collective_numbered",
        [](std::uint64_t ticket, std::uint64_t number) { sink().numbered(ticket, number); });
  m.def("trace_collective_closed", [](std::uint64_t ticket, bool failed) {
    sink().closed(ticket, failed ? trace::Phase::kFailed : trace::Phase::kEnd);
  });
  m.def("trace_collective_issued",
        [](std::uint64_t ticket) { sink().closed(ticket, trace::Phase::kIssued); });
}

}  // namespace

void bind_trace(py::module_& m) {
  m.def("trace_arm", &arm, "folders"_a, "job"_a, "bytes"_a, "place"_a, "is_child"_a, "host"_a,
        "arguments"_a, "rules"_a, "stdlib"_a, "site"_a, "budget"_a = 0.0);
  m.def("trace_armed", [] { return Tracer::current() != nullptr; });
  m.def("trace_pause_sampler", [] {
    Tracer::make().wake();
    Tracer::make().sampler().pause();
  });
  m.def("trace_resume_sampler", [] { Tracer::make().sampler().resume(); });
  m.def("trace_disarm", &disarm);
  m.def("trace_raised",
        [](std::string_view raised, std::string_view message, std::string_view at, bool has_ended) {
          trace::Recorder* recorder = Tracer::made();
          if (recorder != nullptr) recorder->note_raised(raised, message, at, has_ended);
        });
  m.def("trace_remove_dead_jobs", &trace::remove_dead_jobs, py::call_guard<WithoutGil>());
  m.def("trace_object", []() -> py::object {
    Tracer::make();
    PyObject* object = trace::hook::trace_object();
    return object == nullptr ? py::none() : py::reinterpret_steal<py::object>(object);
  });
  m.def("trace_lines", [](const py::object& code, const std::vector<std::uint32_t>& offsets) {
    const auto* object = reinterpret_cast<const PyCodeObject*>(code.ptr());
    const std::string bytes = trace::lines_of(object);
    const trace::LineTable table(
        {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()},
        trace::first_line_of(object));
    std::vector<std::optional<std::uint32_t>> lines;
    lines.reserve(offsets.size());
    for (const std::uint32_t offset : offsets) lines.push_back(table.line_at(offset));
    return lines;
  });
  m.def("trace_check", [](bool on) { Tracer::make().check_every_event(on); });
  m.def("trace_check_result", [] { return Tracer::make().check_result(); });
  bind_collectives(m);
}

}  // namespace oddrank
