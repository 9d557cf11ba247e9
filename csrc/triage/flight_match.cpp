// The comparison: ranks of dumps, members of groups, failed calls.
#include "triage/flight_match.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "os/error.hpp"
#include "os/whole_file.hpp"
#include "triage/flight_mismatch.hpp"

namespace oddrank {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 30;
constexpr std::size_t kMostMismatches = 1024;

// Returns the rank that a dump's own content proves: its sends and receives name its place in a
// group; else it is the only one that is in all its groups. -1: nothing proves one.
std::int64_t rank_by_content(const FlightDump& dump, const FlightTables& tables) {
  std::int64_t found = -1;
  for (const FlightTrack& track : dump.tracks) {
    const auto& ranks = tables.groups[track.group].ranks;
    if (track.own < 0 || static_cast<std::size_t>(track.own) >= ranks.size()) continue;
    const std::int64_t rank = ranks[static_cast<std::size_t>(track.own)];
    if (found >= 0 && found != rank) return -1;
    found = rank;
  }
  return found;
}

std::vector<std::int32_t> common_ranks(const FlightDump& dump, const FlightTables& tables) {
  std::vector<std::int32_t> common;
  bool first = true;
  for (const std::uint32_t group : dump.groups) {
    std::vector<std::int32_t> ranks = tables.groups[group].ranks;
    if (ranks.empty()) continue;
    if (!first && ranks.size() > 4 * common.size() + 64) {
      std::erase_if(
          common, [&](std::int32_t rank) { return std::ranges::find(ranks, rank) == ranks.end(); });
      continue;
    }
    std::ranges::sort(ranks);
    if (std::exchange(first, false)) {
      common = std::move(ranks);
      continue;
    }
    std::vector<std::int32_t> both;
    std::ranges::set_intersection(common, ranks, std::back_inserter(both));
    common = std::move(both);
  }
  return common;
}

// Decides whose dump each file is: its own field, its messages, its name, its groups.
void identify(const std::vector<FlightFile>& files, FlightRecords& records) {
  records.ranks.assign(files.size(), -1);
  for (std::size_t i = 0; i < files.size(); ++i) {
    FlightDump& dump = records.dumps[i];
    if (!dump.readable) continue;
    const std::int64_t named = files[i].rank;
    std::int64_t rank = dump.rank >= 0 ? dump.rank : rank_by_content(dump, *records.tables);
    if (rank >= 0 && named >= 0 && rank != named) {
      dump.notes.push_back("its content says rank " + std::to_string(rank) + ", its name rank " +
                           std::to_string(named) + ": the content is believed");
    }
    if (rank < 0 && named >= 0) {
      const auto& groups = dump.groups;
      const bool member = std::ranges::all_of(groups, [&](std::uint32_t group) {
        const auto& ranks = records.tables->groups[group].ranks;
        return ranks.empty() || std::ranges::find(ranks, named) != ranks.end();
      });
      if (member) {
        rank = named;
      } else {
        dump.notes.push_back("its name says rank " + std::to_string(named) +
                             ", which is not in its groups");
      }
    }
    if (rank < 0) {
      const std::vector<std::int32_t> common = common_ranks(dump, *records.tables);
      if (common.size() == 1) rank = common.front();
    }
    if (rank < 0) dump.notes.emplace_back("neither its content nor its name says whose dump it is");
    records.ranks[i] = rank;
  }
}

// Keeps the newest dump of each rank.
void replace_old(const std::vector<FlightFile>& files, FlightRecords& records) {
  std::unordered_map<std::int64_t, std::size_t> newest;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (records.ranks[i] < 0) continue;
    const auto [found, added] = newest.emplace(records.ranks[i], i);
    if (added) continue;
    const auto age = [&](std::size_t file) {
      return std::tuple(records.dumps[file].latest, files[file].modified, file);
    };
    const bool newer = age(i) > age(found->second);
    const std::size_t old = newer ? found->second : i;
    if (newer) found->second = i;
    FlightDump& dump = records.dumps[old];
    dump.notes.push_back("rank " + std::to_string(records.ranks[old]) +
                         " left a newer dump: this one is not used");
    dump.tracks.clear();
    dump.groups.clear();
    dump.readable = false;
  }
}

std::map<std::uint32_t, FlightMembers> by_group(FlightRecords& records) {
  std::map<std::uint32_t, FlightMembers> found;
  for (std::size_t i = 0; i < records.dumps.size(); ++i) {
    if (records.ranks[i] < 0) continue;
    for (FlightTrack& track : records.dumps[i].tracks) found[track.group].push_back({i, &track});
  }
  return found;
}

// Gloo does not record the ranks of groups. The default group has all; of others those are known
// that used it. Shapes show how many there are: if that disagrees, two groups have one name.
// left: how many ranks may still be filled in, of all groups.
void infer_members(std::uint32_t id, const FlightMembers& members, FlightRecords& records,
                   std::int64_t& left) {
  FlightGroup& group = records.tables->groups[id];
  if (!group.ranks.empty()) return;
  std::int64_t size = 0;
  for (const FlightMember& member : members) {
    for (const FlightRow& row : member.track->rows) {
      if (row.signature == kNoId) continue;
      size = std::max(size, records.tables->signatures[row.signature].group_size);
      if (size > 0) break;
    }
  }
  std::vector<std::int32_t> ranks;
  for (const FlightMember& member : members) {
    ranks.push_back(static_cast<std::int32_t>(records.ranks[member.file]));
  }
  std::ranges::sort(ranks);
  if (group.whole_world() || (group.name == "0" && group.text.empty())) {
    std::int64_t most = std::max<std::int64_t>(size, ranks.back() + 1);
    for (std::size_t i = 0; i < records.dumps.size(); ++i) {
      most = std::max({most, records.dumps[i].world, records.ranks[i] + 1});
    }
    most = std::min(most, kMostFlightRanks);
    if (most > left) return;
    left -= most;
    ranks.clear();
    for (std::int64_t rank = 0; rank < most; ++rank)
      ranks.push_back(static_cast<std::int32_t>(rank));
  } else if (size > 0 && static_cast<std::size_t>(size) < ranks.size()) {
    return;
  }
  group.ranks = std::move(ranks);
}

// Decides what counters without entries count. They may count messages where others send any.
void prove_counters(const FlightMembers& members) {
  bool others = false;
  for (const FlightMember& member : members) {
    const FlightTrack& track = *member.track;
    others |= track.status == FlightTrack::Status::others || !track.messages.empty();
  }
  for (const FlightMember& member : members) {
    FlightTrack& track = *member.track;
    if (track.status != FlightTrack::Status::unproven) continue;
    if (others) {
      track.enqueued = track.started = track.completed = -1;
      continue;
    }
    track.status = FlightTrack::Status::collectives;
    if (track.completed >= 0 && track.enqueued > track.completed) {
      track.open_count = static_cast<std::uint64_t>(track.enqueued - track.completed);
    }
  }
  for (const FlightMember& member : members) {
    if (member.track->backend.empty()) member.track->backend = members.front().track->backend;
  }
}

// Gloo closes a call that failed as it closes one that succeeded. Nobody gets out of a call that
// synchronises before all have entered it: such a call has failed, and its rank was waiting.
void reopen_failed(const FlightGroup& group, const FlightMembers& members,
                   const std::vector<FlightFile>& files) {
  if (group.ranks.empty()) return;
  std::int64_t least = INT64_MAX;
  for (const FlightMember& member : members) {
    if (member.track->enqueued < 0) return;
    least = std::min(least, member.track->enqueued);
  }
  for (const FlightMember& member : members) {
    FlightTrack& track = *member.track;
    const FlightCall& last = track.last;
    if (last.seq <= least || last.seq != track.enqueued || !track.open.empty() || track.confirmed) {
      continue;
    }
    const std::int64_t modified = files[member.file].modified;
    const std::int64_t waited = (modified - last.created) / 1'000'000;
    // Dumps of a job that runs are not of the same moment: only a timeout proves a failure.
    if (last.seq != least + 1 || last.created <= 0 || last.timeout <= 0 || waited < last.timeout) {
      continue;
    }
    track.open.push_back(last);
    track.open_count = 1;
    track.completed = last.seq - 1;
    track.timed_out = true;
  }
}

// Numbers the open messages of two ranks by what both have sent and received, where the group's
// own numbers say it: if neither has another peer in it, or if both hold all from the first.
void number_messages(FlightRecords& records, const FlightMembers& members) {
  std::unordered_map<std::int64_t, const FlightTrack*> of_rank;
  for (const FlightMember& member : members) {
    of_rank.emplace(records.ranks[member.file], member.track);
  }
  for (const FlightMember& member : members) {
    FlightTrack& track = *member.track;
    for (FlightCall& call : track.open) {
      if (call.peer < 0 || call.seq >= 0) continue;
      const auto other = of_rank.find(call.peer);
      if (other == of_rank.end()) continue;
      const auto alone = [](const FlightTrack& one, std::int64_t peer) {
        return std::ranges::all_of(one.messages, [&](const auto& m) { return m.peer == peer; });
      };
      if (!alone(track, call.peer) || !alone(*other->second, records.ranks[member.file])) continue;
      const auto mine = std::ranges::find_if(track.messages, [&](const FlightMessage& each) {
        return each.open && each.peer == call.peer && each.send == (call.op == "send");
      });
      if (mine != track.messages.end()) call.seq = mine->seq;
    }
  }
}

void compare(const std::vector<FlightFile>& files, FlightRecords& records) {
  identify(files, records);
  replace_old(files, records);
  const std::map<std::uint32_t, FlightMembers> groups = by_group(records);
  std::int64_t left = kMostFlightRanks;
  FlightMismatches mismatches(*records.tables, records.ranks, records.mismatches);
  for (const auto& [id, members] : groups) {
    infer_members(id, members, records, left);
    prove_counters(members);
    reopen_failed(records.tables->groups[id], members, files);
    number_messages(records, members);
    if (records.mismatches.size() < kMostMismatches && !records.tables->groups[id].ranks.empty()) {
      mismatches.of_group(id, members);
    }
  }
  for (FlightDump& dump : records.dumps) {
    for (FlightTrack& track : dump.tracks) {
      track.rows = {};
      track.messages = {};
    }
  }
}

}  // namespace

FlightRecords read_flight_records(const std::vector<FlightFile>& files, std::size_t threads) {
  FlightRecords records;
  records.dumps.resize(files.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    FlightReader reader(*records.tables);
    for (std::size_t i = next++; i < files.size(); i = next++) {
      FlightDump& dump = records.dumps[i];
      try {
        const std::string bytes = read_whole_file(files[i].path, kLargestFile);
        dump = reader.read(bytes);
      } catch (const std::exception& error) {
        dump.notes.emplace_back(error.what());
      }
    }
  };
  std::vector<std::thread> others;
  threads = std::min(threads, files.size());
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  compare(files, records);
  return records;
}

FlightRecords read_flight_records(const std::vector<FlightFile>& files,
                                  const std::vector<std::string>& texts) {
  FlightRecords records;
  FlightReader reader(*records.tables);
  for (const std::string& text : texts) records.dumps.push_back(reader.read(text));
  compare(files, records);
  return records;
}

}  // namespace oddrank
