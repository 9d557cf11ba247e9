// Binds csrc/triage: translates types, releases the GIL; no logic.
#include <pybind11/stl.h>

#include <array>
#include <tuple>

#include "logs/writer_tuple.hpp"
#include "os/cpython.hpp"
#include "triage/flight_match.hpp"
#include "triage/stack_text.hpp"
#include "triage/wait_graph.hpp"

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

py::dict records_dict(const FlightRecords& records) {
  py::list dumps, tracks, groups, stacks, mismatches;
  for (std::size_t i = 0; i < records.dumps.size(); ++i) {
    const FlightDump& dump = records.dumps[i];
    append(dumps,
           {dump.readable, known_or_none(records.ranks[i]), dump.host, known_or_none(dump.pid),
            known_or_none(dump.world), dump.version, dump.entries, dump.whole, dump.from_first,
            py::cast(dump.groups), static_cast<double>(dump.pause) * 1e-9, list_of(dump.notes)});
    for (const FlightTrack& track : dump.tracks) {
      append(tracks, {i, track.group, track.backend, known_or_none(track.enqueued),
                      known_or_none(track.completed), list_of(track.open, call_tuple),
                      track.open_count, track.timed_out, track.recorded});
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
    stacks.append(
        list_of(records.tables->stacks[i], [&](std::uint32_t frame) { return frames[frame]; }));
  }
  for (const FlightMismatch& mismatch : records.mismatches) {
    const py::list variants = list_of(mismatch.variants, [](const FlightVariant& variant) {
      return tuple_of(
          {call_tuple(variant.call), py::cast(variant.ranks), variant.file, usual(variant.usual)});
    });
    append(mismatches, {mismatch.group, mismatch.seq,
                        kDiffers[static_cast<std::size_t>(mismatch.differs)], variants});
  }
  return dict_of({"dumps"_k = dumps, "tracks"_k = tracks, "groups"_k = groups, "stacks"_k = stacks,
                  "mismatches"_k = mismatches});
}

py::dict stacks_dict(const triage::Stacks& found) {
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
  const py::list processes = list_of(found.processes, [&](const triage::SeenProcess& one) {
    return tuple_of({one.source, one.line, one.pid, one.parent, strings[one.headline],
                     writer_tuple(found.writers[one.writer]), strings[one.fatal], one.timeout,
                     one.list});
  });
  static constexpr const char* kForms[] = {"py-spy", "faulthandler", "gdb", "pystack", "eu-stack"};
  const py::list threads = list_of(found.threads, [&](const triage::SeenThread& one) {
    return tuple_of({one.process, one.stack, one.line, one.id, strings[one.name],
                     strings[one.state], one.gil, one.wants_gil,
                     kForms[static_cast<std::size_t>(one.form)]});
  });
  static constexpr const char* kErrorKinds[] = {"exception", "native", "fatal"};
  static constexpr const char* kLinks[] = {"", "cause", "context", "member"};
  const py::list errors = list_of(found.errors, [&](const triage::SeenError& one) {
    return tuple_of({kErrorKinds[static_cast<std::size_t>(one.kind)],
                     kLinks[static_cast<std::size_t>(one.link)], one.process, one.stack, one.line,
                     strings[one.text]});
  });
  return dict_of({"stacks"_k = stacks, "processes"_k = processes, "threads"_k = threads,
                  "errors"_k = errors, "dropped"_k = found.dropped + found.texts.dropped()});
}

using triage::Number;
using Call = std::tuple<Number, Number, Number, std::optional<double>, bool, bool, bool>;
using Row = std::tuple<std::int64_t, std::size_t, bool, bool, Number, Number, std::vector<Call>>;

}  // namespace

void bind_triage(py::module_& m) {
  m.def("read_flight_records",
        [](const std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>& files,
           std::size_t threads) {
          std::vector<FlightFile> named;
          named.reserve(files.size());
          for (const auto& [path, rank, modified] : files) named.push_back({path, rank, modified});
          return records_dict(without_gil([&] { return read_flight_records(named, threads); }));
        });
  m.def(
      "read_stack_files",
      [](const std::vector<std::string>& paths, const std::vector<std::uint64_t>& last) {
        std::vector<std::pair<std::uint32_t, std::string>> failed;
        py::dict made =
            stacks_dict(without_gil([&] { return triage::read_stack_files(paths, last, failed); }));
        add(made, {"failed"_k = list_of(failed, [](const auto& one) {
                     return tuple_of({one.first, one.second});
                   })});
        return made;
      },
      "paths"_a, "last"_a = std::vector<std::uint64_t>());
  m.def("read_stack_text", [](const py::bytes& bytes) {
    const auto view = static_cast<std::string_view>(bytes);
    return stacks_dict(without_gil([&] { return triage::read_stack_text(view); }));
  });
  m.def("has_stacks", &triage::has_stacks, py::call_guard<WithoutGil>());
  m.def("wait_graph", [](const std::vector<Row>& rows,
                         std::vector<std::vector<std::int64_t>> groups) {
    std::vector<triage::RankProgress> progress;
    for (const auto& [rank, group, on_host, whole, enqueued, completed, open] : rows) {
      progress.push_back({rank, group, on_host, whole, enqueued, completed, {}});
      for (const auto& [seq, peer, nth, since, is_send, needs_all, started] : open) {
        progress.back().open.push_back(
            {rank, group, on_host, seq, peer, nth, since, is_send, needs_all, started});
      }
    }
    const auto graph = without_gil([&] { return triage::wait_graph(progress, std::move(groups)); });
    const py::list places = list_of(graph.places, [](const triage::WaitPlace& one) {
      return tuple_of({one.call, py::cast(one.calls), py::cast(one.missing),
                       py::cast(one.elsewhere), py::cast(one.unheard)});
    });
    return dict_of({"places"_k = places, "of"_k = py::cast(graph.of),
                    "ordered"_k = py::cast(graph.ordered), "unmet"_k = py::cast(graph.unmet)});
  });
}

}  // namespace oddrank
