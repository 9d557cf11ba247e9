// Bindings of csrc/trace: translate types; no logic.
#include "trace/bind.hpp"

#include <pybind11/stl.h>

#include "base/error.hpp"
#include "trace/hooks/hook.hpp"
#include "trace/hooks/tracer.hpp"
#include "trace/read/linetable.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

using trace::ArmOptions;
using trace::Filter;
using trace::Tracer;

std::string arm(const std::vector<std::string>& bases, const std::string& job, std::size_t bytes,
                std::tuple<int, int, int, int> place, const std::string& host,
                const std::string& arguments,
                const std::vector<std::pair<std::string, std::string>>& rules,
                std::vector<std::string> stdlib, std::vector<std::string> site) {
  std::vector<trace::Rule> made;
  for (const auto& [package, name] : rules) {
    const auto level = trace::level_named(name);
    if (!level) throw Error("packages: " + name + " is none of off, where, calls, lines");
    made.push_back({package, *level});
  }
  ArmOptions options{bases, job, bytes, {}};
  std::tie(options.process.rank, options.process.local_rank, options.process.world,
           options.process.node) = place;
  options.process.python = PY_VERSION_HEX;
  options.process.host = host;
  options.process.hook = trace::hook().name;
  options.process.arguments = arguments;
  Tracer::make().start(std::move(options),
                       Filter(std::move(made), {std::move(stdlib), std::move(site)}),
                       trace::hook());
  if (!trace::arm_hook()) throw py::error_already_set();
  return Tracer::make().path();
}

}  // namespace

void bind_trace(py::module_& m) {
  m.def(
      "trace_lines",
      [](std::uint32_t version_hex, const py::bytes& linetable, std::uint32_t first_line,
         const std::vector<std::uint32_t>& offsets) {
        const std::string_view bytes(linetable);
        const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
        const trace::LineTable table(version_hex, {data, bytes.size()}, first_line);
        std::vector<std::optional<std::uint32_t>> lines;
        lines.reserve(offsets.size());
        for (const std::uint32_t offset : offsets) lines.push_back(table.line_at(offset));
        return lines;
      },
      py::arg("version_hex"), py::arg("linetable"), py::arg("first_line"), py::arg("offsets"),
      "The lines at these offsets (in bytes) of the bytecode of a code object of CPython 3.10-3.14;"
      " None where there is none, and for a table that no CPython has written.");
  m.def(
      "trace_arm", &arm, py::arg("folders"), py::arg("job"), py::arg("bytes"), py::arg("place"),
      py::arg("host"), py::arg("arguments"), py::arg("rules"), py::arg("stdlib"), py::arg("site"),
      "Makes the record file of this process and hooks into the interpreter. folders: the first "
      "with room is taken; place: (rank, local rank, world, node); rules: (package, level), level "
      "one of off, where, calls, lines; stdlib, site: folders with a slash at their end. Returns "
      "the file's path.");
  m.def(
      "trace_disarm",
      [] {
        trace::disarm_hook();
        Tracer::make().stop();
      },
      "Takes the hooks away; what was recorded stays.");
  m.def(
      "trace_object",
      []() -> py::object {
        PyObject* object = trace::trace_object();
        return object == nullptr ? py::none() : py::reinterpret_steal<py::object>(object);
      },
      "For threading.settrace(): hooks the thread that calls it. None where threads need none.");
  m.def(
      "trace_check", [](bool on) { Tracer::make().check_every_event(on); }, py::arg("on"),
      "For tests: compares the shadow stack with the frames after every event.");
  m.def(
      "trace_check_result", [] { return Tracer::make().check_result(); },
      "(events compared, stacks that were not those of the frames).");
}

}  // namespace oddrank
