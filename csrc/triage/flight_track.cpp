// Closes entries, and sums up what is left: rows, messages, open calls.
#include "triage/flight_track.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace oddrank {

void FlightTracker::close_groups(const FlightName& name) {
  for (std::size_t i = 0; i < name.entries.size(); ++i) {
    const FlightEntry& end = entries_[name.entries[i]];
    if (!end.coalesced) continue;
    const auto claim = [&](bool p2p) {
      std::size_t claimed = 0;
      for (std::size_t j = i; j-- > 0;) {
        FlightEntry& entry = entries_[name.entries[j]];
        const bool same = p2p ? entry.message == end.message : entry.seq == end.seq;
        if (entry.coalesced || entry.inner || entry.p2p != p2p || !same) break;
        entry.inner = true;
        entry.state = end.state;
        entry.retired = end.retired;
        ++claimed;
      }
      return claimed;
    };
    const std::size_t claimed = claim(end.p2p);
    // Before torch 2.6 the end of a group of messages was not marked as one of them.
    if (claimed == 0 && !end.p2p && claim(true) != 0) entries_[name.entries[i]].p2p = true;
  }
}

std::int32_t FlightTracker::global(const FlightName& name, std::int32_t own) const {
  const FlightGroup& group = tables_.groups[name.group];
  if (own < 0) return -1;
  if (group.ranks.empty()) return name.desc == "default_pg" || name.name == "0" ? own : -1;
  const auto index = static_cast<std::size_t>(own);
  return index < group.ranks.size() ? group.ranks[index] : -1;
}

FlightTrack FlightTracker::track(const FlightName& name, const FlightDump& dump) {
  FlightTrack made;
  made.group = name.group;
  const FlightCounters& counters = name.counters;
  if (name.entries.empty()) {
    made.status = FlightTrack::Status::unproven;
    made.enqueued = counters.enqueued;
    made.started = counters.started;
    made.completed = counters.completed;
    return made;
  }
  made.recorded = true;
  made.backend = entries_[name.entries.back()].operation.backend.substr(0, 64);
  close_groups(name);
  made.status = what_counters_count(name);
  close_done(name, made);
  std::int64_t first_open = -1;
  for (const std::uint32_t index : name.entries) {
    const FlightEntry& entry = entries_[index];
    if (entry.p2p || entry.seq < 0) continue;
    if (entry.open() && first_open < 0) first_open = entry.seq;
    if (!entry.inner) add_row(entry, made);
  }
  made.completed = first_open < 0 ? made.enqueued : first_open - 1;
  if (made.started >= 0) made.started = std::max(made.started, made.completed);
  messages(name, made);
  const FlightEntry& newest = entries_[name.entries.back()];
  made.unseen = made.backend == "gloo" && made.messages.empty() && newest.op_id > newest.seq;
  choose_open(name, made, dump);
  // Operations that the ring has lost may be open as well.
  const bool lost = dump.contiguous && !dump.from_first && first_open == made.base;
  if (lost && first_open >= 0 && made.status == FlightTrack::Status::collectives &&
      counters.completed >= 0 && counters.completed < made.completed) {
    made.open_count += static_cast<std::uint64_t>(made.completed - counters.completed);
    made.completed = counters.completed;
  }
  return made;
}

// The newest operation says what the counters of its group count; the one before it if the host is
// still inside the call, since a counter moves when the call returns.
FlightTrack::Status FlightTracker::what_counters_count(const FlightName& name) const {
  const std::int64_t enqueued = name.counters.enqueued;
  std::size_t asked = 0;
  for (auto at = name.entries.rbegin(); at != name.entries.rend() && asked < 2; ++at) {
    const FlightEntry& entry = entries_[*at];
    if (entry.inner || enqueued < 0) continue;
    ++asked;
    if (!entry.p2p && entry.seq == enqueued) return FlightTrack::Status::collectives;
    if (entry.op_id == enqueued || (entry.p2p && entry.message == enqueued)) {
      return FlightTrack::Status::others;
    }
  }
  return FlightTrack::Status::none;
}

// Counts how far the group has come, and closes what lies before. A stream completes its
// collectives in order, so a completed one closes those before it; gloo has no streams.
void FlightTracker::close_done(const FlightName& name, FlightTrack& track) {
  const bool counted = track.status == FlightTrack::Status::collectives;
  std::int64_t done = counted ? name.counters.completed : -1;
  track.enqueued = counted ? name.counters.enqueued : -1;
  for (const std::uint32_t index : name.entries) {
    const FlightEntry& entry = entries_[index];
    if (entry.seq < 0) continue;
    // A message carries the number of the last collective before it.
    track.enqueued = std::max(track.enqueued, entry.seq);
    if (entry.p2p || entry.inner) continue;
    if (entry.state == CallState::started) track.started = std::max(track.started, entry.seq);
    if (entry.state != CallState::completed) continue;
    track.confirmed = true;
    if (track.backend != "gloo") done = std::max(done, entry.seq);
  }
  for (const std::uint32_t index : name.entries) {
    FlightEntry& entry = entries_[index];
    if (!entry.p2p && entry.seq >= 0 && entry.seq <= done) entry.retired = true;
  }
}

void FlightTracker::add_row(const FlightEntry& entry, FlightTrack& track) {
  if (track.rows.empty()) track.base = entry.seq;
  const std::int64_t offset = entry.seq - track.base;
  if (offset < 0 || offset > UINT32_MAX) return;
  if (!track.rows.empty() && offset <= track.rows.back().seq) {
    // Several operations under one number are a group: its end stands for it.
    if (offset == track.rows.back().seq) {
      track.rows.back().signature = entry.coalesced ? entry.signature : kNoId;
    }
    return;
  }
  track.rows.push_back({static_cast<std::uint32_t>(offset), entry.signature, entry.stack});
}

// Fills the messages of a track and closes those that came before a completed one of the same
// peers and way.
void FlightTracker::messages(const FlightName& name, FlightTrack& track) {
  std::unordered_map<std::int64_t, std::int64_t> done;
  for (auto at = name.entries.rbegin(); at != name.entries.rend(); ++at) {
    FlightEntry& entry = entries_[*at];
    if (!entry.p2p || entry.coalesced) continue;
    if (entry.operation.own >= 0) track.own = entry.operation.own;
    if (entry.operation.peer < 0) continue;
    if (entry.state == CallState::completed) done.emplace(entry.operation.way(), entry.message);
    if (entry.open() && done.contains(entry.operation.way())) entry.retired = true;
  }
  for (const std::uint32_t index : name.entries) {
    const FlightEntry& entry = entries_[index];
    if (!entry.p2p || entry.coalesced || entry.operation.peer < 0) continue;
    track.messages.push_back({entry.message, global(name, entry.operation.peer),
                              entry.operation.send, entry.open(), entry.signature, entry.stack});
  }
}

FlightCall FlightTracker::call_of(const FlightEntry& entry, const FlightGroup& group) const {
  FlightCall call;
  const OpRule* const rule = entry.operation.rule;
  call.op = rule != nullptr ? rule->op : entry.operation.name;
  const bool message = entry.operation.message();
  call.seq = entry.p2p ? (message && group.ranks.size() == 2 ? entry.message : -1) : entry.seq;
  call.dtype = dtypes_text(entry.dtypes, visits_);
  call.sizes = both_sizes(entry.input, entry.output, visits_);
  const FlightShape in = shape_of(entry.input, visits_);
  const FlightShape shape = in.tensors != 0 ? in : shape_of(entry.output, visits_);
  const std::int64_t size = dtype_bytes(call.dtype);
  if (size > 0 && shape.tensors != 0 && shape.elements < (std::int64_t{1} << 55)) {
    call.bytes = shape.elements * size;
  }
  call.state = entry.state;
  call.created = entry.created;
  call.timeout = entry.timeout;
  call.stack = entry.stack;
  call.thread = std::string(entry.thread.string().substr(0, 64));
  return call;
}

// Keeps the oldest open calls: half of them collectives, and of messages one per peer and way.
void FlightTracker::choose_open(const FlightName& name, FlightTrack& track,
                                const FlightDump& dump) {
  const FlightGroup& group = tables_.groups[name.group];
  std::vector<std::uint32_t> chosen, others;
  std::size_t collectives = 0;
  std::vector<std::int64_t> ways;
  const FlightEntry* newest = nullptr;
  for (const std::uint32_t index : name.entries) {
    const FlightEntry& entry = entries_[index];
    const bool message = entry.p2p && !entry.coalesced;
    if (!entry.p2p && !entry.inner) newest = &entry;
    if (!entry.open() || (entry.inner && !message)) continue;
    // The end of a group of messages stands for them; alone it says only that one is open.
    if (entry.p2p && entry.coalesced && !track.messages.empty()) continue;
    ++track.open_count;
    bool wanted = false;
    if (message) {
      const std::int64_t way = entry.operation.way();
      wanted =
          ways.size() < FlightTrack::kMostOpen / 2 && std::ranges::find(ways, way) == ways.end();
      if (wanted) ways.push_back(way);
    } else {
      wanted = collectives++ < FlightTrack::kMostOpen / 2;
    }
    (wanted ? chosen : others).push_back(index);
  }
  for (std::size_t i = 0; i < others.size() && chosen.size() < FlightTrack::kMostOpen; ++i) {
    chosen.push_back(others[i]);
  }
  std::ranges::sort(chosen);
  for (const std::uint32_t index : chosen) {
    FlightCall call = call_of(entries_[index], group);
    if (entries_[index].p2p) call.peer = global(name, entries_[index].operation.peer);
    if (call.timeout > 0 && call.created > 0 && dump.latest > call.created &&
        (dump.latest - call.created) / 1'000'000 >= call.timeout) {
      track.timed_out = true;
    }
    track.open.push_back(std::move(call));
  }
  if (newest != nullptr && newest->retired && newest->state != CallState::completed &&
      newest->seq == track.enqueued) {
    track.last = call_of(*newest, group);
    if (track.last.sizes.empty() && newest->signature != kNoId) {
      track.last.sizes = tables_.signatures[newest->signature].sizes;
      track.last.dtype = tables_.signatures[newest->signature].dtype;
    }
  }
}

}  // namespace oddrank