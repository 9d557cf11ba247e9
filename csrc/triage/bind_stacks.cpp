// Binds csrc/triage's reader of stacks: translates types, releases the GIL; no logic.
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "os/cpython.hpp"
#include "os/utf8.hpp"
#include "triage/stack_files.hpp"
#include "triage/stack_tree.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

using triage::StackReader;

py::dict everything(const StackReader& reader) {
  const auto& texts = reader.texts();
  std::vector<py::object> strings;
  strings.reserve(texts.size());
  for (std::uint32_t i = 0; i < texts.size(); ++i) strings.push_back(text(texts[i]));
  const auto number = [](std::uint64_t value) { return py::int_(value); };
  py::list frames;
  for (const triage::Frame& frame : reader.frames()) {
    frames.append(py::make_tuple(strings[frame.function], strings[frame.file],
                                 frame.line == 0 ? py::object(py::none()) : py::int_(frame.line),
                                 frame.native));
  }
  py::list stacks;
  for (std::size_t i = 0; i < reader.stack_count(); ++i) {
    const auto& stack = reader.stack(i);
    py::tuple made(stack.size());
    for (std::size_t k = 0; k < stack.size(); ++k) made[k] = frames[stack[k]];
    stacks.append(std::move(made));
  }
  const auto known = [](std::int64_t value) {
    return value < 0 ? py::object(py::none()) : py::object(py::int_(value));
  };
  const auto writer = [&](const triage::Writer& one) {
    return py::make_tuple(known(one.rank), known(one.local_rank), known(one.task),
                          known(one.host_number), known(one.pid), strings[one.host],
                          strings[one.pod]);
  };
  py::list processes;
  for (const triage::SeenProcess& one : reader.processes()) {
    processes.append(py::make_tuple(one.source, one.line, number(one.pid), number(one.parent),
                                    strings[one.command], strings[one.headline], writer(one.writer),
                                    strings[one.fatal], one.timeout, one.list));
  }
  static constexpr const char* kForms[] = {"py-spy", "faulthandler", "gdb", "pystack", "eu-stack"};
  py::list threads;
  for (const triage::SeenThread& one : reader.threads()) {
    threads.append(py::make_tuple(one.process, one.stack, one.line, number(one.id), one.decimal,
                                  strings[one.name], strings[one.state],
                                  one.gil < 0 ? py::object(py::none()) : py::bool_(one.gil != 0),
                                  one.wants_gil, kForms[static_cast<std::size_t>(one.form)]));
  }
  static constexpr const char* kKinds[] = {"exception", "native", "fatal"};
  static constexpr const char* kLinks[] = {"", "cause", "context", "member"};
  py::list errors;
  for (const triage::SeenError& one : reader.errors()) {
    errors.append(py::make_tuple(kKinds[static_cast<std::size_t>(one.kind)],
                                 kLinks[static_cast<std::size_t>(one.link)], one.process, one.stack,
                                 one.line, strings[one.text]));
  }
  py::dict made;
  made["stacks"] = std::move(stacks);
  made["processes"] = std::move(processes);
  made["threads"] = std::move(threads);
  made["errors"] = std::move(errors);
  made["dropped"] = reader.dropped();
  return made;
}

}  // namespace

void bind_triage_stacks(py::module_& m) {
  m.def(
      "read_stack_files",
      [](const std::vector<std::string>& paths) {
        StackReader reader;
        std::vector<std::pair<std::uint32_t, std::string>> failed;
        {
          const WithoutGil unlocked;
          failed = triage::read_stack_files(reader, paths);
        }
        py::dict made = everything(reader);
        py::list unread;
        for (const auto& [index, why] : failed) unread.append(py::make_tuple(index, text(why)));
        made["failed"] = unread;
        return made;
      },
      py::arg("paths"),
      "Reads the stacks in text files. Returns stacks (tuples of (function, file, line, native), "
      "innermost first), processes, threads and errors; failed: (index, why) of unreadable files.");
  m.def(
      "read_stack_text",
      [](const py::bytes& bytes) {
        const auto view = static_cast<std::string_view>(bytes);
        StackReader reader;
        {
          const WithoutGil unlocked;
          reader.read(0, view);
          reader.finish();
        }
        return everything(reader);
      },
      py::arg("text"), "Reads the stacks in a text: as read_stack_files, of one file.");
  m.def(
      "stack_tree",
      [](const std::vector<std::pair<std::vector<std::string>, std::vector<std::int64_t>>>& all) {
        triage::StackTree tree;
        std::vector<triage::StackTree::Row> rows;
        {
          const WithoutGil unlocked;
          for (const auto& [path, members] : all) tree.add({path.begin(), path.end()}, members);
          rows = tree.rows();
        }
        py::list made;
        for (const triage::StackTree::Row& row : rows) {
          py::list frames;
          for (const std::uint32_t frame : row.frames) frames.append(text(tree.text(frame)));
          made.append(py::make_tuple(row.depth, frames, row.members, row.count));
        }
        return made;
      },
      py::arg("stacks"),
      "Groups stacks, each (frames from the outermost, numbers of processes), into a tree. Returns "
      "its lines: (depth, frames without a branch, numbers as ranges, their count).");
  m.def(
      "has_stacks",
      [](const std::string& path) {
        const WithoutGil unlocked;
        return triage::has_stacks(path);
      },
      py::arg("path"),
      "Returns whether a file has at least one stack or traceback in its first 16 MiB.");
}

}  // namespace oddrank
