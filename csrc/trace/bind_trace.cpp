// Bindings of csrc/trace: translate types; no logic.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "os/cpython.hpp"
#include "os/error.hpp"
#include "trace/format/layout.hpp"
#include "trace/hooks/hook.hpp"
#include "trace/hooks/marks.hpp"
#include "trace/hooks/tracer.hpp"
#include "trace/write/record_files.hpp"
#include "trace/write/recording_sink.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

using trace::ArmOptions;
using trace::Filter;
using trace::Tracer;

std::string arm(const std::vector<std::string>& bases, const std::string& job, std::size_t bytes,
                std::tuple<int, int, int, int> place, bool is_child, const std::string& host,
                const std::string& arguments,
                const std::vector<std::pair<std::string, std::string>>& rules,
                std::vector<std::string> stdlib, std::vector<std::string> site,
                const std::string& hook_name) {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "oddrank records the main interpreter only: call arm() there");
    throw py::error_already_set();
  }
#ifdef Py_GIL_DISABLED
  throw Error("a Python without a GIL cannot be recorded yet: use its build with the GIL");
#endif
  if (!trace::cpython::kKnown)
    throw Error("oddrank records CPython 3.10 to 3.14, and this Python is newer: update oddrank");
  const trace::Hook* hook = trace::hook_named(hook_name);
  if (hook == nullptr) throw Error("this Python has no hook called " + hook_name);
  std::vector<trace::Rule> made;
  for (const auto& [package, name] : rules) {
    const auto level = trace::level_named(name);
    if (!level) throw Error("packages: " + name + " is none of off, where, calls, lines");
    made.push_back({package, *level});
  }
  ArmOptions options{bases, job, is_child ? trace::kChildBytes : bytes, {}};
  std::tie(options.process.rank, options.process.local_rank, options.process.world,
           options.process.node) = place;
  options.process.is_child = is_child;
  options.process.python = static_cast<std::uint32_t>(PY_VERSION_HEX);
  options.process.host = host;
  options.process.job = job;
  options.process.hook = hook->name;
  options.process.arguments = arguments;
  Tracer::make().start(std::move(options),
                       Filter(std::move(made), {std::move(stdlib), std::move(site)}), *hook);
  if (!hook->arm()) {
    const py::error_already_set error;
    Tracer::make().stop();
    throw Error(std::string("cannot hook into Python: ") + error.what());
  }
  return Tracer::make().path();
}

py::capsule collective_sink() {
  Tracer::make();  // here, under the GIL: threads that issue collectives only read it
  const auto& sink = trace::recording_sink([]() noexcept { return Tracer::current(); });
  return py::capsule(&sink, trace::CollectiveSink::kCapsule);
}

}  // namespace

void bind_trace(py::module_& m) {
  m.def("trace_arm", &arm, py::arg("folders"), py::arg("job"), py::arg("bytes"), py::arg("place"),
        py::arg("is_child"), py::arg("host"), py::arg("arguments"), py::arg("rules"),
        py::arg("stdlib"), py::arg("site"), py::arg("hook") = "",
        "Makes the record file of this process, or continues it, and hooks into the interpreter. "
        "folders: the first with room is used; bytes: size of a rank's file; place: "
        "(rank, local rank, world, node); rules: (package, level), level one of off, where, calls, "
        "lines; stdlib, site: folders with a slash at their end; hook: settrace, monitoring (3.12 "
        "and later), or empty for this version's. Returns the file's path.");
  m.def(
      "trace_armed", [] { return Tracer::current() != nullptr; }, "Whether this process records.");
  m.def(
      "trace_disarm",
      [] {
        Tracer& tracer = Tracer::make();
        if (tracer.hook().disarm != nullptr) tracer.hook().disarm();
        tracer.stop();
      },
      "Removes the hooks; the record stays.");
  m.def(
      "trace_script_ended",
      [](const std::string& raised) {
        if (trace::Recorder* recorder = Tracer::made()) recorder->note_script_ended(raised);
      },
      py::arg("raised"),
      "Notes in the record that the script has ended, by an exception of this type or ('') none.");
  m.def("trace_remove_dead_jobs", &trace::remove_dead_jobs, py::arg("base"), py::arg("own"),
        py::arg("keep"), py::call_guard<WithoutGil>(),
        "Removes jobs of a base folder whose processes have all ended, except the last `keep` of "
        "several ranks, the last `keep` of one rank, and `own`; returns their number.");
  m.attr("step") = py::reinterpret_steal<py::object>(trace::make_step());
  m.attr("mark") = py::reinterpret_steal<py::object>(trace::make_mark());
  m.attr("section") = py::reinterpret_steal<py::object>(trace::section_type());
  m.def(
      "trace_object",
      []() -> py::object {
        const trace::Hook& hook = Tracer::make().hook();
        PyObject* object = hook.trace_object == nullptr ? nullptr : hook.trace_object();
        return object == nullptr ? py::none() : py::reinterpret_steal<py::object>(object);
      },
      "For threading.settrace(): hooks the thread that calls it. None if threads need no hook, and "
      "before trace_arm().");
  m.def("trace_collective_sink", &collective_sink,
        "For _torch.start_collectives(): writes into this process's record file while it is "
        "armed.");
  m.def(
      "trace_check", [](bool on) { Tracer::make().check_every_event(on); }, py::arg("on"),
      "For tests: compares the shadow stack with the frames after every event.");
  m.def(
      "trace_check_result", [] { return Tracer::make().check_result(); },
      "Returns (events compared, stacks that differed from the frames).");
}

}  // namespace oddrank
