// Bindings of csrc/logs: translate types, release the GIL; no logic.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "logs/scanner.hpp"
#include "os/cpython.hpp"
#include "os/utf8.hpp"

namespace oddrank {
namespace py = pybind11;

namespace {

py::object number(std::int64_t value) {
  return value < 0 ? py::object(py::none()) : py::int_(value);
}

py::object optional_text(const std::string& value) {
  return value.empty() ? py::object(py::none()) : py::object(text(value));
}

py::tuple to_tuple(const logs::Writer& w) {
  return py::make_tuple(number(w.rank), number(w.local_rank), number(w.task), number(w.host_number),
                        number(w.pid), optional_text(w.host), optional_text(w.pod));
}

py::object to_tuple(const std::optional<logs::Timestamp>& time) {
  if (!time) return py::none();
  static constexpr const char* kClocks[] = {"utc", "wall", "boot"};
  return py::make_tuple(time->ns, kClocks[static_cast<std::size_t>(time->clock)],
                        time->whole_seconds);
}

py::dict to_dict(const logs::Scan& scan) {
  py::list matches;
  for (const logs::Match& m : scan.matches) {
    matches.append(py::make_tuple(m.line, m.needle, text(m.text), to_tuple(m.writer),
                                  to_tuple(m.time), m.follows, m.repeated));
  }
  py::list speakers;
  for (const logs::Speaker& s : scan.speakers) {
    speakers.append(
        py::make_tuple(to_tuple(s.writer), s.lines, s.first_line, s.last_line, to_tuple(s.last)));
  }
  py::dict d;
  d["matches"] = matches;
  d["left_out"] = scan.left_out;
  d["speakers"] = speakers;
  d["speakers_left_out"] = scan.speakers_left_out;
  d["lines"] = scan.lines;
  d["bytes"] = scan.bytes;
  return d;
}

}  // namespace

void bind_logs(py::module_& m) {
  m.def(
      "scan_lines",
      [](const std::string& path, const std::vector<std::pair<std::string, int>>& words,
         std::size_t most, std::size_t total) {
        std::vector<logs::Needle> list;
        list.reserve(words.size());
        for (const auto& [word, follow] : words) list.push_back({word, follow});
        logs::Limits limits;
        limits.matches = most;
        limits.total = total;
        logs::Scan scan;
        {
          const WithoutGil unlocked;
          const logs::Needles needles(std::move(list));
          scan = logs::scan_file(path, needles, limits);
        }
        return to_dict(scan);
      },
      py::arg("path"), py::arg("needles"), py::arg("most") = logs::Limits{}.matches,
      py::arg("total") = logs::Limits{}.total,
      "Returns the lines of a log that contain one of the needles, (word, lines that follow) "
      "each, and who wrote lines at all. `most` of a needle and `total` bytes are kept.");
}

}  // namespace oddrank
