// Joins what has the same number.
#include "trace/read/collectives.hpp"

#include <map>

namespace oddrank::trace {
namespace {

// Of one collective, any of its records may be missing and each may know what others don't: the
// begin has no sequence yet, and an end that found no open entry has nothing but its number.
void add(Collective& to, const CollectiveRecord& record) {
  to.number = record.number;
  if (record.phase == Phase::kEnd) {
    to.state = Collective::State::kEnded;
    to.end = record.tsc;
  } else if (record.phase == Phase::kIssued) {
    to.state = Collective::State::kIssued;
  } else {
    to.begin = record.tsc;
  }
  if (record.sequence != CollectiveRecord::kNoSequence) to.sequence = record.sequence;
  if (record.tid == 0) return;
  to.group = record.group;
  to.operation = record.operation;
  to.tid = record.tid;
  to.data_type = record.data_type;
  to.bytes = record.bytes;
}

}  // namespace

std::string_view name_of(Collective::State state) noexcept {
  switch (state) {
    case Collective::State::kOpen:
      return "open";
    case Collective::State::kEnded:
      return "ended";
    case Collective::State::kIssued:
      return "issued";
  }
  return "";
}

std::vector<Collective> read_joined_collectives(const RecordFile& file) {
  std::map<std::uint64_t, Collective> joined;
  // The open ones first: what ends meanwhile has its end in the ring.
  for (const CollectiveRecord& record : read_open_collectives(file)) {
    add(joined[record.number], record);
  }
  for (const CollectiveRecord& record : read_collectives(file).list) {
    add(joined[record.number], record);
  }
  std::vector<Collective> list;
  list.reserve(joined.size());
  for (const auto& [number, collective] : joined) list.push_back(collective);
  return list;
}

}  // namespace oddrank::trace
