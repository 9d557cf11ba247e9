// Binding of the reader of collectives: translates types; no logic.
#include <pybind11/stl.h>

#include "trace/bind.hpp"
#include "trace/bind_str.hpp"
#include "trace/read/collectives.hpp"
#include "trace/read/snapshot.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

using trace::text;

py::list collectives_of(const std::string& path) {
  std::vector<trace::Collective> found;
  std::optional<trace::Dictionary> names;
  trace::Clock clock;
  {
    const py::gil_scoped_release release;
    const trace::RecordFile file(path);
    found = trace::read_joined_collectives(file);
    // Later, so that every id is there.
    names.emplace(file);
    clock = trace::clock_of(file);
  }
  const auto time = [&clock](std::optional<std::uint64_t> ticks) {
    return ticks ? clock.realtime_ns(*ticks) : std::nullopt;
  };
  py::list tuples;
  for (const trace::Collective& c : found) {
    tuples.append(py::make_tuple(c.tid, text(names->group(c.group)), c.sequence,
                                 text(names->operation(c.operation)), c.bytes,
                                 trace::name_of(c.state), time(c.begin), time(c.end)));
  }
  return tuples;
}

}  // namespace

void bind_collective_records(py::module_& m) {
  m.def("trace_collectives", &collectives_of, py::arg("path"),
        "The collectives of a record file, in the order of issue: (thread, group, sequence or None,"
        " op, bytes, \"open\", \"ended\" or \"issued\", begin and end in ns of the wall clock or"
        " None).");
}

}  // namespace oddrank
