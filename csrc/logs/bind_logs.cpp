// Bindings of csrc/logs: translate types, no logic. Those that ask Python for a writer keep the
// GIL: one thread reads a log.
#include <pybind11/stl.h>

#include <cerrno>

#include "logs/merger.hpp"
#include "logs/scanner.hpp"
#include "logs/splitter.hpp"
#include "logs/writer_tuple.hpp"
#include "os/cpython.hpp"
#include "os/error.hpp"

namespace oddrank {
namespace {

using Words = std::vector<std::pair<std::string, int>>;

py::object to_tuple(const std::optional<logs::Timestamp>& time) {
  if (!time) return py::none();
  static constexpr const char* kClocks[] = {"utc", "wall", "boot"};
  return tuple_of({time->ns, kClocks[static_cast<std::size_t>(time->clock)], time->whole_seconds});
}

// Of a mark or a share.
const auto counted = [](const auto& of) { return tuple_of({of.lines, of.bytes}); };

py::dict to_dict(const logs::Scan& scan) {
  const py::list matches = list_of(scan.matches, [](const logs::Match& m) {
    return tuple_of(
        {m.line, m.needle, m.text, writer_tuple(m.writer), to_tuple(m.time), m.follows});
  });
  const py::list speakers = list_of(scan.speakers, [](const logs::Speaker& s) {
    return tuple_of({writer_tuple(s.writer), s.lines, s.first_line, s.last_line});
  });
  return dict_of({"matches"_k = matches, "marks"_k = list_of(scan.marks, counted),
                  "left_out"_k = scan.left_out, "speakers"_k = speakers, "lines"_k = scan.lines});
}

std::vector<logs::Needle> needles(const Words& words) {
  std::vector<logs::Needle> list;
  list.reserve(words.size());
  for (const auto& [word, follow] : words) list.push_back({word, follow});
  return list;
}

// Returns a function that asks Python for the number of a writer.
logs::WriterNumbers::Ask ask(py::function number) {
  return [number = std::move(number)](const logs::Writer& writer) {
    return number(writer_tuple(writer)).cast<std::size_t>();
  };
}

void bind_merging(py::module_& m) {
  m.def("merge_logs", [](const std::vector<std::pair<std::string, std::int64_t>>& sources, int fd,
                         bool strip, bool clean, const py::function& label) {
    std::vector<logs::MergeSource> list;
    list.reserve(sources.size());
    for (const auto& [path, reference_ns] : sources) list.push_back({path, reference_ns});
    const auto labelled = [&label](std::size_t source, const logs::Writer& writer) {
      return label(source, writer_tuple(writer)).cast<std::string>();
    };
    const auto pause = [] {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    };
    try {
      const logs::Merged merged = logs::merge_logs(list, {fd, strip, clean, labelled, pause});
      return dict_of({"lines"_k = merged.lines, "untimed"_k = merged.untimed,
                      "late"_k = merged.late, "without_times"_k = list_of(merged.without_times)});
    } catch (const SystemError& error) {
      if (error.number() != EPIPE) throw;  // else the reader has left
      PyErr_SetString(PyExc_BrokenPipeError, error.what());
      throw py::error_already_set();
    }
  });
}

void bind_readers(py::module_& m) {
  py::class_<logs::Splitter>(m, "LogSplitter")
      .def(py::init([](std::string folder, py::function number, bool strip) {
        return std::make_unique<logs::Splitter>(std::move(folder), ask(std::move(number)), strip);
      }))
      .def("add", &logs::Splitter::add)
      .def("feed", [](logs::Splitter& self, const py::bytes& chunk) { self.feed(chunk); })
      .def("finish", &logs::Splitter::finish)
      .def("flush", &logs::Splitter::flush)
      .def("shares", [](const logs::Splitter& self) { return list_of(self.shares(), counted); });
  m.def("find_time", [](std::string_view line, std::int64_t reference_ns) {
    return to_tuple(logs::find_time(line, reference_ns));
  });
}

}  // namespace

void bind_logs(py::module_& m) {
  bind_readers(m);
  bind_merging(m);
  py::class_<logs::Readers>(m, "LogReaders")
      .def(py::init([](const Words& words, const std::vector<Words>& others) {
        std::vector<logs::Readers::Reader> readers{{logs::Needles(needles(words)), {}}};
        logs::Limits bare;
        bare.text = bare.speakers = 0;
        for (const Words& other : others) {
          readers.push_back({logs::Needles(needles(other)), bare});
        }
        return logs::Readers(std::move(readers));
      }))
      .def("read", [](const logs::Readers& readers, const std::string& path) {
        const auto scans = without_gil([&] { return readers.scan(path); });
        py::list others;
        for (std::size_t other = 1; other < scans.size(); ++other) {
          others.append(list_of(scans[other].matches, [](const logs::Match& m) {
            return tuple_of({m.line, m.needle});
          }));
        }
        return tuple_of({to_dict(scans[0]), others});
      });
  m.def(
      "scan_lines",
      [](const std::string& path, const Words& words, std::size_t most, bool speakers,
         const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges,
         const std::pair<std::uint64_t, std::uint64_t>& begin) {
        logs::Limits limits;
        limits.matches = most;
        if (!speakers) limits.speakers = 0;
        for (const auto& [first, last] : ranges) limits.ranges.push_back({first, last});
        limits.begin = {begin.first, begin.second};
        const logs::Readers reader({{logs::Needles(needles(words)), limits}});
        return to_dict(without_gil([&] { return reader.scan(path)[0]; }));
      },
      "path"_a, "needles"_a, "most"_a = logs::Limits{}.matches, "speakers"_a = true,
      "ranges"_a = std::vector<std::pair<std::uint64_t, std::uint64_t>>(),
      "begin"_a = std::pair<std::uint64_t, std::uint64_t>());
}

}  // namespace oddrank
