// Binding of the flight-recorder reader: translates types, releases the GIL; no logic.
#include <pybind11/stl.h>

#include <array>
#include <tuple>

#include "os/cpython.hpp"
#include "os/to_python.hpp"
#include "triage/flight_match.hpp"

namespace oddrank {
namespace {

Value usual(std::int8_t value) { return value < 0 ? Value() : Value(value > 0); }

constexpr std::array kStates{"enqueued", "started", "unknown"};
constexpr std::array kDiffers{"op", "dtype", "sizes", "order"};

py::tuple call_tuple(const FlightCall& call) {
  return tuple_of(
      {known_or_none(call.seq), call.op, known_or_none(call.peer), call.dtype, call.sizes,
       known_or_none(call.bytes), kStates[static_cast<std::size_t>(call.state)],
       call.created > 0 ? Value(static_cast<double>(call.created) * 1e-9) : Value(),
       known_or_none(call.stack == kNoId ? -1 : std::int64_t{call.stack}), usual(call.usual)});
}

py::list calls_list(const std::vector<FlightCall>& calls) {
  py::list made;
  for (const FlightCall& call : calls) append(made, call_tuple(call));
  return made;
}

py::dict records_dict(const FlightRecords& records) {
  py::list dumps, tracks, groups, stacks, mismatches;
  for (std::size_t i = 0; i < records.dumps.size(); ++i) {
    const FlightDump& dump = records.dumps[i];
    py::list notes;
    for (const std::string& note : dump.notes) append(notes, note);
    append(dumps,
           {dump.readable, known_or_none(records.ranks[i]), dump.host, known_or_none(dump.pid),
            known_or_none(dump.world), dump.version, dump.entries, dump.whole, dump.from_first,
            py::cast(dump.groups), static_cast<double>(dump.pause) * 1e-9, notes});
    for (const FlightTrack& track : dump.tracks) {
      append(tracks, {i, track.group, track.backend, known_or_none(track.enqueued),
                      known_or_none(track.completed), calls_list(track.open), track.open_count,
                      track.timed_out, track.recorded});
    }
  }
  for (std::uint32_t i = 0; i < records.tables->groups.size(); ++i) {
    const FlightGroup& group = records.tables->groups[i];
    py::tuple ranks(group.ranks.size());
    for (std::size_t j = 0; j < group.ranks.size(); ++j) ranks[j] = py::int_(group.ranks[j]);
    append(groups, {group.name, ranks, group.text});
  }
  std::vector<py::object> frames;
  for (std::uint32_t i = 0; i < records.tables->frames.size(); ++i) {
    const FlightFrame& frame = records.tables->frames[i];
    frames.push_back(tuple_of({frame.function, frame.file, known_or_none(frame.line)}));
  }
  for (std::uint32_t i = 0; i < records.tables->stacks.size(); ++i) {
    py::list stack;
    for (const std::uint32_t frame : records.tables->stacks[i]) stack.append(frames[frame]);
    stacks.append(stack);
  }
  for (const FlightMismatch& mismatch : records.mismatches) {
    py::list variants;
    for (const FlightVariant& variant : mismatch.variants) {
      append(variants, {call_tuple(variant.call), py::cast(variant.ranks), variant.file,
                        usual(variant.usual)});
    }
    append(mismatches, {mismatch.group, mismatch.seq,
                        kDiffers[static_cast<std::size_t>(mismatch.differs)], variants});
  }
  return dict_of({"dumps"_k = dumps, "tracks"_k = tracks, "groups"_k = groups, "stacks"_k = stacks,
                  "mismatches"_k = mismatches});
}

}  // namespace

void bind_flight_recorder(py::module_& m) {
  m.def("read_flight_records",
        [](const std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>& files,
           std::size_t threads) {
          std::vector<FlightFile> named;
          named.reserve(files.size());
          for (const auto& [path, rank, modified] : files) named.push_back({path, rank, modified});
          return records_dict(without_gil([&] { return read_flight_records(named, threads); }));
        });
}

}  // namespace oddrank
