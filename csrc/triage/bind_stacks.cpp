// Binds csrc/triage's reader of stacks: translates types, releases the GIL; no logic.
#include <pybind11/stl.h>

#include "logs/writer_tuple.hpp"
#include "os/cpython.hpp"
#include "triage/stack_text.hpp"

namespace oddrank {
namespace {

py::dict everything(const triage::Stacks& found) {
  std::vector<py::object> strings;
  strings.reserve(found.texts.size());
  for (std::uint32_t i = 0; i < found.texts.size(); ++i) strings.push_back(text(found.texts[i]));
  std::vector<py::object> frames;
  for (const triage::Frame& frame : found.frames) {
    frames.push_back(tuple_of({strings[frame.function], strings[frame.file],
                               frame.line == 0 ? Value() : Value(frame.line), frame.native}));
  }
  py::list stacks;
  for (const auto& stack : found.stacks) {
    py::tuple made(stack.size());
    for (std::size_t k = 0; k < stack.size(); ++k) made[k] = frames[stack[k]];
    stacks.append(std::move(made));
  }
  py::list processes;
  for (const triage::SeenProcess& one : found.processes) {
    append(processes,
           {one.source, one.line, one.pid, one.parent, strings[one.headline],
            writer_tuple(found.writers[one.writer]), strings[one.fatal], one.timeout, one.list});
  }
  static constexpr const char* kForms[] = {"py-spy", "faulthandler", "gdb", "pystack", "eu-stack"};
  py::list threads;
  for (const triage::SeenThread& one : found.threads) {
    append(threads,
           {one.process, one.stack, one.line, one.id, strings[one.name], strings[one.state],
            one.gil, one.wants_gil, kForms[static_cast<std::size_t>(one.form)]});
  }
  static constexpr const char* kErrorKinds[] = {"exception", "native", "fatal"};
  static constexpr const char* kLinks[] = {"", "cause", "context", "member"};
  py::list errors;
  for (const triage::SeenError& one : found.errors) {
    append(errors, {kErrorKinds[static_cast<std::size_t>(one.kind)],
                    kLinks[static_cast<std::size_t>(one.link)], one.process, one.stack, one.line,
                    strings[one.text]});
  }
  return dict_of({"stacks"_k = stacks, "processes"_k = processes, "threads"_k = threads,
                  "errors"_k = errors, "dropped"_k = found.dropped + found.texts.dropped()});
}

}  // namespace

void bind_triage_stacks(py::module_& m) {
  m.def(
      "read_stack_files",
      [](const std::vector<std::string>& paths, const std::vector<std::uint64_t>& last) {
        std::vector<std::pair<std::uint32_t, std::string>> failed;
        py::dict made =
            everything(without_gil([&] { return triage::read_stack_files(paths, last, failed); }));
        py::list unread;
        for (const auto& [index, why] : failed) append(unread, {index, why});
        add(made, {"failed"_k = unread});
        return made;
      },
      "paths"_a, "last"_a = std::vector<std::uint64_t>());
  m.def("read_stack_text", [](const py::bytes& bytes) {
    const auto view = static_cast<std::string_view>(bytes);
    return everything(without_gil([&] { return triage::read_stack_text(view); }));
  });
  m.def("has_stacks", &triage::has_stacks, py::call_guard<WithoutGil>());
}

}  // namespace oddrank
