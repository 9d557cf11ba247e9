// Reads everything in a file of unknown origin: for the fuzzer and the tests.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "trace/export/export.hpp"
#include "trace/read/records.hpp"
#include "trace/read/snapshot.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {

// Reads every byte of a view, for the address sanitizer.
std::size_t sum(const auto& bytes) {
  std::size_t total = 0;
  for (const auto byte : bytes) total += static_cast<unsigned char>(byte);
  return total;
}

inline std::size_t read_names(const RecordFile& file) {
  std::size_t total = 0;
  const Dictionary dictionary(file);
  for (const Code& code : dictionary.codes()) {
    total += sum(code.qualified_name) + sum(code.file) + sum(code.linetable);
  }
  return total;
}

// Reads each part, and the counts.
inline std::size_t read_parts(const RecordFile& file) {
  std::size_t total = sum(file.process().host) + file.header()->marks_claimed + read_names(file);
  const Clock clock(file.clocks());
  const Dictionary dictionary(file);
  for (const Thread& thread : read_threads(file).list) {
    for (const Place place : thread.stack) {
      total += dictionary.code(place.code()) != nullptr ? 1 : 0;
    }
    for (const Moment& moment : read_events(file, thread.slot, ~0ULL).list) {
      total += clock.realtime_ns(moment.tsc).has_value() ? 1 : 0;
    }
  }
  for (const Mark& mark : read_marks(file).list) total += sum(mark.text);
  for (const auto& record : read_collectives(file).list) {
    total += sum(dictionary.group_name(record.group)) + sum(dictionary.operation(record.operation));
  }
  for (const ProcessGroup& group : dictionary.groups()) {
    total += sum(group.name) + sum(group.backend) + sum(group.text);
    for (const RankRun& run : group.runs) total += run.count;
  }
  for (const auto& one : read_joined_collectives(file)) {
    total += sum(name_of(one.state)) + sum(name_of_type(one.type)) + one.input();
    const ProcessGroup* group = dictionary.group(one.group);
    if (group != nullptr) total += group->global(one.partner).value_or(0);
  }
  for (const auto& one : read_timed(file)) {
    total += sum(dictionary.group_name(one.group)) + sum(dictionary.operation(one.operation)) +
             one.begin.value_or(0) + one.end.value_or(0);
  }
  for (const GroupProgress& group : read_progress(file)) total += group.begun;
  total += sum(slim_record(file));
  return total + read_open_collectives(file).size();
}

inline std::string rest_of(Export& record) {
  std::string text;
  for (std::string chunk = record.chunk(); !chunk.empty(); chunk = record.chunk()) text += chunk;
  return text;
}

// Exports everything, on the record's own clock or on that of other records of its boot.
inline std::string export_text(RecordFile file, bool lines) {
  const bool alone = file.process().pid % 2 != 0;
  std::vector<ClockPicture> clocks = clock_pictures(file);
  const Clock clock(clocks);
  Export record(std::move(file));
  ExportOptions options{1, clock.begin().value_or(0), std::move(clocks), lines};
  if (!alone) options.clocks = {{0, 0, 0}, {2500, 1000, 1000}};
  if (!record.start(options)) return {};
  return rest_of(record);
}

}  // namespace oddrank::trace
