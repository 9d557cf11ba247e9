// Binding of the flight-recorder reader: translates types, releases the GIL; no logic.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "os/cpython.hpp"
#include "os/utf8.hpp"
#include "triage/flight_match.hpp"

namespace oddrank {
namespace py = pybind11;
namespace {

// None stands for what is not known.
py::object known_or_none(std::int64_t value) {
  return value < 0 ? py::none() : py::object(py::int_(value));
}

const char* state_name(CallState state) {
  switch (state) {
    case CallState::enqueued:
      return "enqueued";
    case CallState::started:
      return "started";
    case CallState::completed:
      break;
  }
  return "unknown";
}

py::tuple call_tuple(const FlightCall& call) {
  return py::make_tuple(
      known_or_none(call.seq), text(call.op), known_or_none(call.peer), text(call.dtype),
      text(call.sizes), known_or_none(call.bytes), state_name(call.state),
      call.created > 0 ? py::object(py::float_(static_cast<double>(call.created) * 1e-9))
                       : py::none(),
      known_or_none(call.stack == kNoId ? -1 : std::int64_t{call.stack}), text(call.thread));
}

py::list calls_list(const std::vector<FlightCall>& calls) {
  py::list made;
  for (const FlightCall& call : calls) made.append(call_tuple(call));
  return made;
}

const char* differs_name(Differs differs) {
  switch (differs) {
    case Differs::op:
      return "op";
    case Differs::dtype:
      return "dtype";
    case Differs::sizes:
      return "sizes";
    case Differs::order:
      break;
  }
  return "order";
}

py::dict records_dict(const FlightRecords& records) {
  py::list dumps, tracks, groups, stacks, mismatches;
  for (std::size_t i = 0; i < records.dumps.size(); ++i) {
    const FlightDump& dump = records.dumps[i];
    py::list notes;
    for (const std::string& note : dump.notes) notes.append(text(note));
    dumps.append(py::make_tuple(
        dump.readable, known_or_none(records.ranks[i]), text(dump.host), known_or_none(dump.pid),
        known_or_none(dump.world), text(dump.version), dump.entries, dump.whole, dump.from_first,
        py::cast(dump.groups), static_cast<double>(dump.pause) * 1e-9, notes));
    for (const FlightTrack& track : dump.tracks) {
      tracks.append(py::make_tuple(i, track.group, text(track.backend),
                                   known_or_none(track.enqueued), known_or_none(track.started),
                                   known_or_none(track.completed), calls_list(track.open),
                                   track.open_count, track.timed_out, track.recorded));
    }
  }
  for (std::uint32_t i = 0; i < records.tables->groups.size(); ++i) {
    const FlightGroup& group = records.tables->groups[i];
    py::tuple ranks(group.ranks.size());
    for (std::size_t j = 0; j < group.ranks.size(); ++j) ranks[j] = py::int_(group.ranks[j]);
    groups.append(py::make_tuple(text(group.name), ranks, text(group.text)));
  }
  std::vector<py::object> frames;
  for (std::uint32_t i = 0; i < records.tables->frames.size(); ++i) {
    const FlightFrame& frame = records.tables->frames[i];
    frames.push_back(
        py::make_tuple(text(frame.function), text(frame.file), known_or_none(frame.line)));
  }
  for (std::uint32_t i = 0; i < records.tables->stacks.size(); ++i) {
    py::list stack;
    for (const std::uint32_t frame : records.tables->stacks[i]) stack.append(frames[frame]);
    stacks.append(stack);
  }
  for (const FlightMismatch& mismatch : records.mismatches) {
    py::list variants;
    for (const FlightVariant& variant : mismatch.variants) {
      variants.append(py::make_tuple(
          call_tuple(variant.call), py::cast(variant.ranks), variant.file,
          variant.usual < 0 ? py::none() : py::object(py::bool_(variant.usual > 0))));
    }
    mismatches.append(
        py::make_tuple(mismatch.group, mismatch.seq, differs_name(mismatch.differs), variants));
  }
  py::dict made;
  made["dumps"] = dumps;
  made["tracks"] = tracks;
  made["groups"] = groups;
  made["stacks"] = stacks;
  made["mismatches"] = mismatches;
  return made;
}

}  // namespace

void bind_flight_recorder(py::module_& m) {
  m.def(
      "read_flight_records",
      [](const std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>& files,
         std::size_t threads) {
        std::vector<FlightFile> named;
        named.reserve(files.size());
        for (const auto& [path, rank, modified] : files) named.push_back({path, rank, modified});
        FlightRecords records;
        {
          const WithoutGil unlocked;
          records = read_flight_records(named, threads);
        }
        return records_dict(records);
      },
      py::arg("files"), py::arg("threads"),
      "Reads flight-recorder dumps and compares their ranks. files: path, rank by the file's name "
      "(-1: unknown), time of the last change in ns. Returns dumps, tracks (a row per rank and "
      "group), groups, stacks and mismatches.");
}

}  // namespace oddrank
