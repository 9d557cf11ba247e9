// Binds NicerTrace's text and counts: one call handles up to 4,096 events.
#include <pybind11/stl.h>

#include "os/cpython.hpp"
#include "trace/bind_dicts.hpp"
#include "trace/nicer/text.hpp"
#include "trace/nicer/text_queue.hpp"
#include "trace/read/snapshot.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

using trace::FedEvent;
using trace::text;
using trace::TextQueue;
using trace::TextWriter;

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

py::tuple function_tuple(const TextWriter::Function& function) {
  return py::make_tuple(text(function.file), text(function.name));
}

py::list line_counts(const TextWriter& writer) {
  py::list made;
  for (const auto& line : writer.lines()) {
    made.append(py::make_tuple(text(line.file), line.line, line.count));
  }
  return made;
}

py::list called(const TextWriter& writer) {
  py::list made;
  for (const auto& function : writer.called()) made.append(function_tuple(function));
  return made;
}

py::list callers(const TextWriter& writer) {
  py::list made;
  for (const auto& [caller, function] : writer.callers()) {
    made.append(py::make_tuple(function_tuple(caller), function_tuple(function)));
  }
  return made;
}

}  // namespace

void bind_trace_nicer(py::module_& m) {
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

}  // namespace oddrank
