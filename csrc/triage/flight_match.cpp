// The comparison: ranks of dumps, members of groups, failed calls.
#include "triage/flight_match.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <tuple>
#include <utility>

#include "os/error.hpp"
#include "os/mix.hpp"
#include "os/whole_file.hpp"

namespace oddrank {
namespace {

struct FlightMember {
  std::size_t file;
  FlightTrack* track;
};
using FlightMembers = std::vector<FlightMember>;

// Returns what a rank holds of a number, null if nothing.
const FlightRow* row_at(const FlightTrack& track, std::int64_t seq) {
  const std::int64_t offset = seq - track.base;
  const auto found = std::ranges::lower_bound(
      track.rows, offset, {}, [](const FlightRow& row) { return std::int64_t{row.seq}; });
  return found == track.rows.end() || found->seq != offset ? nullptr : &*found;
}

// Returns whether two operations can't belong to one call, and in what.
bool differ(const FlightSignature& one, const FlightSignature& two, Differs& in) {
  if (one.op != two.op) {
    in = Differs::op;
  } else if (!one.dtype.empty() && !two.dtype.empty() && one.dtype != two.dtype) {
    in = Differs::dtype;
  } else if (one.elements >= 0 && two.elements >= 0 && one.elements != two.elements) {
    in = Differs::sizes;
  } else {
    return false;
  }
  return true;
}

// Returns the numbers at which the members hold more than one signature, in order. Most groups
// have none, so this looks at numbers alone.
std::vector<std::int64_t> suspicious(const FlightMembers& members) {
  std::vector<std::int64_t> found;
  std::int64_t first = INT64_MAX;
  std::int64_t last = -1;
  std::size_t rows = 0;
  for (const FlightMember& member : members) {
    const FlightTrack& track = *member.track;
    if (track.rows.empty()) continue;
    first = std::min(first, track.base);
    last = std::max(last, track.base + track.rows.back().seq);
    rows += track.rows.size();
  }
  if (last < 0) return found;
  const auto span = static_cast<std::uint64_t>(last - first);
  // Numbers with gaps are kept in a map, all others in a row.
  const bool dense = span < 4 * rows + 4096;
  std::vector<std::uint32_t> row(dense ? span + 1 : 0, kNoId);
  std::unordered_map<std::int64_t, std::uint32_t, MixedHash> sparse;
  for (const FlightMember& member : members) {
    const FlightTrack& track = *member.track;
    for (const FlightRow& each : track.rows) {
      if (each.signature == kNoId) continue;
      const std::int64_t seq = track.base + each.seq;
      std::uint32_t& seen = dense ? row[static_cast<std::size_t>(seq - first)]
                                  : sparse.try_emplace(seq, kNoId).first->second;
      if (seen == kNoId) {
        seen = each.signature;
      } else if (seen != each.signature) {
        found.push_back(seq);
      }
    }
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Returns whether two ranks issued the same operations from `seq` on in another order.
bool reordered(const FlightTrack& one, const FlightTrack& two, std::int64_t seq) {
  constexpr std::size_t kWindow = 16;
  std::multiset<std::uint32_t> ahead, behind;
  for (std::size_t i = 0; i < kWindow; ++i) {
    const FlightRow* const left = row_at(one, seq + static_cast<std::int64_t>(i));
    const FlightRow* const right = row_at(two, seq + static_cast<std::int64_t>(i));
    for (const FlightRow* const row : {left, right}) {
      if (row == nullptr || row->signature == kNoId) return false;
    }
    ahead.insert(left->signature);
    behind.insert(right->signature);
    if (i > 0 && ahead == behind) return true;
  }
  return false;
}

// Finds where the ranks of a group issued different operations under one number.
class FlightMismatches {
 public:
  FlightMismatches(const FlightTables& tables, const std::vector<std::int64_t>& ranks,
                   std::vector<FlightMismatch>& found)
      : tables_(tables), ranks_(ranks), found_(found) {}

  // Finds the first call of a group in which its members differ.
  void of_group(std::uint32_t group, const FlightMembers& members) {
    for (const std::int64_t seq : suspicious(members)) {
      if (report(group, members, seq)) return;
    }
  }

 private:
  struct Held {
    std::uint32_t signature;
    FlightMembers members;
  };

  bool report(std::uint32_t group, const FlightMembers& members, std::int64_t seq) {
    struct Issued {
      FlightMember member;
      std::uint32_t signature;
      bool newest, coalesced, known;
    };
    std::vector<Issued> issued;
    bool coalesced = false;
    for (const FlightMember& member : members) {
      const FlightRow* const row = row_at(*member.track, seq);
      if (row == nullptr || row->signature == kNoId) continue;
      const FlightSignature& signature = tables_.signatures[row->signature];
      issued.push_back({member, row->signature, row == &member.track->rows.back(),
                        signature.coalesced, !signature.dtype.empty() && signature.elements >= 0});
      coalesced |= signature.coalesced;
    }
    // Where others ended a coalesced group, the newest operation may be the first of one that is
    // being filled.
    if (coalesced) {
      std::erase_if(issued, [](const Issued& one) { return one.newest && !one.coalesced; });
    }
    // A call that lacks a dtype or a size agrees with several that differ: those come first.
    std::stable_partition(issued.begin(), issued.end(),
                          [](const Issued& one) { return one.known; });
    std::vector<Held> held;
    for (const Issued& one : issued) {
      auto same = std::ranges::find_if(
          held, [&](const Held& each) { return compatible(each.signature, one.signature); });
      if (same == held.end()) same = held.insert(held.end(), {one.signature, {}});
      same->members.push_back(one.member);
    }
    if (held.size() < 2) return false;
    std::ranges::stable_sort(held, [](const Held& one, const Held& two) {
      return one.members.size() > two.members.size();
    });
    FlightMismatch made;
    made.group = group;
    made.seq = seq;
    if (!differ(tables_.signatures[held[0].signature], tables_.signatures[held[1].signature],
                made.differs)) {
      return false;
    }
    if (reordered(*held[0].members.front().track, *held[1].members.front().track, seq)) {
      made.differs = Differs::order;
    }
    const std::uint32_t expected = expected_at(held, seq);
    for (const Held& each : held) {
      FlightVariant variant;
      const FlightSignature& signature = tables_.signatures[each.signature];
      variant.call.seq = seq;
      variant.call.op = signature.op;
      variant.call.dtype = signature.dtype;
      variant.call.sizes = signature.sizes;
      const FlightTrack& track = *each.members.front().track;
      variant.call.stack = row_at(track, seq)->stack;
      variant.call.state = track.completed >= seq ? CallState::completed : CallState::enqueued;
      if (expected != kNoId) variant.usual = each.signature == expected ? 1 : 0;
      variant.file = each.members.front().file;
      for (const FlightMember& member : each.members) variant.ranks.push_back(ranks_[member.file]);
      std::ranges::sort(variant.ranks);
      made.variants.push_back(std::move(variant));
    }
    found_.push_back(std::move(made));
    return true;
  }

  bool compatible(std::uint32_t one, std::uint32_t two) const {
    Differs in{};
    return one == two || !differ(tables_.signatures[one], tables_.signatures[two], in);
  }

  // Returns the one operation that always followed the calls before `seq`, if it is among those
  // that are held; else kNoId.
  static std::uint32_t expected_at(const std::vector<Held>& held, std::int64_t seq) {
    std::span<const FlightRow> longest;  // of all ranks, up to `seq`
    for (const Held& each : held) {
      for (const FlightMember& member : each.members) {
        const std::span<const FlightRow> rows(member.track->rows.data(),
                                              row_at(*member.track, seq));
        if (longest.data() == nullptr || rows.size() > longest.size()) longest = rows;
      }
    }
    const auto usual = usual_next(longest.size(), [&](std::size_t one, std::size_t two) {
      return longest[one].signature == longest[two].signature;
    });
    if (!usual) return kNoId;
    const std::uint32_t next = longest[*usual].signature;
    const bool held_by_any =
        std::ranges::any_of(held, [&](const Held& each) { return each.signature == next; });
    return held_by_any ? next : kNoId;
  }

  const FlightTables& tables_;
  const std::vector<std::int64_t>& ranks_;
  std::vector<FlightMismatch>& found_;
};

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

// Returns how many ranks the shapes of a group's operations show. 0: they show nothing.
std::int64_t size_by_shapes(const FlightMembers& members, const FlightTables& tables) {
  std::int64_t size = 0;
  for (const FlightMember& member : members) {
    for (const FlightRow& row : member.track->rows) {
      if (row.signature == kNoId) continue;
      size = std::max(size, tables.signatures[row.signature].group_size);
      if (size > 0) break;
    }
  }
  return size;
}

// Returns the ranks of the job that left no dump, as far as anything shows how many it has.
std::vector<std::int32_t> without_dump(const FlightRecords& records,
                                       const std::map<std::uint32_t, FlightMembers>& groups) {
  constexpr std::size_t kMostMissing = std::size_t{1} << 16;
  std::int64_t most = 0;
  std::set<std::int64_t> heard;
  for (std::size_t i = 0; i < records.dumps.size(); ++i) {
    most = std::max({most, records.dumps[i].world, records.ranks[i] + 1});
    if (records.ranks[i] >= 0) heard.insert(records.ranks[i]);
  }
  for (const auto& [id, members] : groups) {
    if (!records.tables->groups[id].ranks.empty()) continue;
    most = std::max(most, size_by_shapes(members, *records.tables));
  }
  std::vector<std::int32_t> missing;
  for (std::int64_t rank = 0; rank < most && missing.size() < kMostMissing; ++rank) {
    if (!heard.contains(rank)) missing.push_back(static_cast<std::int32_t>(rank));
  }
  return missing;
}

// Gloo does not record the ranks of groups. The default group has all ranks. Another group has the
// ranks that used it, and perhaps some without a dump (missing). Shapes may show its size:
// - unknown: the ranks that used it, if there are two or more and none is missing
// - smaller: two groups have this name
// - the same: the ranks that used it
// - larger by all missing ranks: these belong to it; by another number: unknown
// left: number of ranks that may still be filled in, of all groups.
// Returns whether all members that left a dump are in one group.
bool infer_members(std::uint32_t id, const FlightMembers& members,
                   const std::vector<std::int32_t>& missing, FlightRecords& records,
                   std::int64_t& left) {
  FlightGroup& group = records.tables->groups[id];
  if (!group.ranks.empty()) return true;
  const std::int64_t size = size_by_shapes(members, *records.tables);
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
    if (most > left) return false;
    left -= most;
    ranks.clear();
    for (std::int64_t rank = 0; rank < most; ++rank)
      ranks.push_back(static_cast<std::int32_t>(rank));
  } else if (size > 0 && static_cast<std::size_t>(size) < ranks.size()) {
    return false;
  } else if (size > 0 && !missing.empty() &&
             static_cast<std::size_t>(size) == ranks.size() + missing.size()) {
    if (static_cast<std::int64_t>(missing.size()) > left) return true;
    left -= static_cast<std::int64_t>(missing.size());
    ranks.insert(ranks.end(), missing.begin(), missing.end());
    std::ranges::sort(ranks);
  } else if (size > 0 ? static_cast<std::size_t>(size) > ranks.size()
                      : ranks.size() == 1 || !missing.empty()) {
    return true;  // no rank is in a call with itself alone
  }
  group.ranks = std::move(ranks);
  return true;
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
      track.enqueued = track.completed = -1;
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

// Gloo closes a call that failed as it closes one that succeeded. No rank leaves a call that
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

// Numbers the open messages of two ranks so that the k-th send has the number of the k-th recv: by
// counting, if both dumps hold all from the first. The group's own numbers count both ways
// together, and a batch may mix them in another order on each side: they are of use only where
// all messages of the two go one way, and neither has another peer in the group. A rank whose peer
// left no dump is not compared.
void number_messages(FlightRecords& records, const FlightMembers& members) {
  std::unordered_map<std::int64_t, const FlightMember*> of_rank;
  for (const FlightMember& member : members) of_rank.emplace(records.ranks[member.file], &member);
  for (const FlightMember& member : members) {
    FlightTrack& track = *member.track;
    const std::int64_t own = records.ranks[member.file];
    std::vector<std::pair<std::int64_t, bool>> numbered;
    for (const FlightCall& first : track.open) {
      const std::pair way(std::int64_t{first.peer}, first.op == "send");
      if (way.first < 0 || way.first == own || std::ranges::find(numbered, way) != numbered.end()) {
        continue;
      }
      numbered.push_back(way);
      // clang 14 lets no lambda use a structured binding.
      const std::int64_t peer = way.first;
      const bool send = way.second;
      const auto found = of_rank.find(peer);
      const FlightMember* const other = found != of_rank.end() ? found->second : nullptr;
      const bool counted = other != nullptr && records.dumps[member.file].from_first &&
                           records.dumps[other->file].from_first;
      const auto only = [](const FlightTrack& one, std::int64_t to, bool both, bool sends) {
        return std::ranges::all_of(one.messages, [&](const FlightMessage& each) {
          return each.peer == to && (both || each.send == sends);
        });
      };
      const bool alone = only(track, peer, other == nullptr, send) &&
                         (other == nullptr || only(*other->track, own, false, !send));
      if (!counted && !alone) continue;
      // The oldest open calls of a way are kept, so that they meet the open messages in order.
      std::int64_t count = 0;
      auto call = track.open.begin();
      for (const FlightMessage& each : track.messages) {
        if (each.peer != peer || each.send != send) continue;
        ++count;
        if (!each.open) continue;
        call = std::find_if(call, track.open.end(), [&](const FlightCall& one) {
          return one.peer == peer && (one.op == "send") == send;
        });
        if (call == track.open.end()) break;
        (call++)->seq = counted ? count : each.seq;
      }
    }
  }
}

void compare(const std::vector<FlightFile>& files, FlightRecords& records) {
  identify(files, records);
  replace_old(files, records);
  const std::map<std::uint32_t, FlightMembers> groups = by_group(records);
  std::int64_t left = kMostFlightRanks;
  const std::vector<std::int32_t> missing = without_dump(records, groups);
  FlightMismatches mismatches(*records.tables, records.ranks, records.mismatches);
  for (const auto& [id, members] : groups) {
    const bool one_group = infer_members(id, members, missing, records, left);
    prove_counters(members);
    reopen_failed(records.tables->groups[id], members, files);
    number_messages(records, members);
    if (records.mismatches.size() < kMostMismatches && one_group) mismatches.of_group(id, members);
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
    const auto read = flight_reader(*records.tables);  // may lack memory
    for (std::size_t i = next++; i < files.size(); i = next++) {
      FlightDump& dump = records.dumps[i];
      try {
        const auto [bytes, whole] = read_whole_file(files[i].path, kLargestFile);
        dump = read(bytes);
        if (!whole) dump.notes.emplace_back("only its first 1 GiB was read");
      } catch (const std::exception& error) {
        dump.notes.emplace_back(error.what());
      }
    }
  };
  {
    std::vector<std::jthread> others;
    threads = std::min(threads, files.size());
    // If one thread lacks memory for a file, the others read it.
    const auto help = [&work] {
      try {
        work();
      } catch (const std::exception&) {
        return;
      }
    };
    for (std::size_t i = 1; i < threads; ++i) {
      try {
        others.emplace_back(help);
      } catch (const std::exception&) {
        break;  // no more may start
      }
    }
    work();
  }
  for (FlightDump& dump : records.dumps) {
    if (!dump.readable && dump.notes.empty()) dump.notes.emplace_back("there was no memory for it");
  }
  compare(files, records);
  return records;
}

FlightRecords read_flight_records(const std::vector<FlightFile>& files,
                                  const std::vector<std::string>& texts) {
  FlightRecords records;
  const auto read = flight_reader(*records.tables);
  for (const std::string& text : texts) records.dumps.push_back(read(text));
  compare(files, records);
  return records;
}

}  // namespace oddrank
