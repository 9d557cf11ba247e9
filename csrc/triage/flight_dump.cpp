// From the values of a dump to tracks: its groups, its counters, and who it is of.
#include "triage/flight_dump.hpp"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "os/error.hpp"
#include "os/mix.hpp"
#include "triage/flight_entry.hpp"
#include "triage/values.hpp"

namespace oddrank {
namespace {

// Makes tracks of entries: what a rank did in one group. Marks entries as closed that others prove
// closed.
class FlightTracker {
 public:
  FlightTracker(FlightTables& tables, std::vector<FlightEntry>& entries, Visits& visits)
      : tables_(tables), entries_(entries), visits_(visits) {}

  FlightTrack track(const FlightName& name, const FlightDump& dump);

 private:
  void close_groups(const FlightName& name);
  FlightTrack::Status what_counters_count(const FlightName& name) const;
  void close_done(const FlightName& name, FlightTrack& track);
  static void add_row(const FlightEntry& entry, FlightTrack& track);
  void messages(const FlightName& name, FlightTrack& track);
  void choose_open(const FlightName& name, FlightTrack& track, const FlightDump& dump);
  std::int8_t usual(std::uint32_t index) const;
  FlightCall call_of(const FlightEntry& entry) const;
  std::int32_t global(const FlightName& name, std::int32_t own) const;

  // A hostile dump may have as many groups as operations, and each look reads all operations.
  static constexpr std::size_t kMostLooks = 64;

  FlightTables& tables_;
  std::vector<FlightEntry>& entries_;
  Visits& visits_;
  std::size_t looks_left_ = kMostLooks;
};

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
  std::unordered_set<std::int64_t, MixedHash> done;
  for (auto at = name.entries.rbegin(); at != name.entries.rend(); ++at) {
    FlightEntry& entry = entries_[*at];
    if (!entry.p2p || entry.coalesced) continue;
    if (entry.operation.own >= 0) track.own = entry.operation.own;
    if (entry.operation.peer < 0) continue;
    if (entry.state == CallState::completed) done.insert(entry.operation.way());
    if (entry.open() && done.contains(entry.operation.way())) entry.retired = true;
  }
  for (const std::uint32_t index : name.entries) {
    const FlightEntry& entry = entries_[index];
    if (!entry.p2p || entry.coalesced || entry.operation.peer < 0) continue;
    track.messages.push_back({entry.message, global(name, entry.operation.peer),
                              entry.operation.send, entry.open(), entry.signature, entry.stack});
  }
}

FlightCall FlightTracker::call_of(const FlightEntry& entry) const {
  FlightCall call;
  const OpRule* const rule = entry.operation.rule;
  call.op = rule != nullptr ? rule->op : entry.operation.name;
  call.seq = entry.p2p ? -1 : entry.seq;
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

// Training repeats itself: returns whether an entry is the one that always followed the entries
// before it, in whatever groups they were.
std::int8_t FlightTracker::usual(std::uint32_t index) const {
  const auto same = [&](std::size_t one, std::size_t two) {
    const FlightEntry& a = entries_[one];
    const FlightEntry& b = entries_[two];
    return a.name == b.name && a.signature == b.signature && a.p2p == b.p2p &&
           a.operation.name == b.operation.name && a.operation.peer == b.operation.peer;
  };
  for (const std::size_t length : kPatternLengths) {
    std::size_t matches = 0;
    std::size_t next = 0;
    bool always = true;
    for (std::size_t at = length; at < index && always; ++at) {
      std::size_t matched = 0;
      while (matched < length && same(at - 1 - matched, index - 1 - matched)) ++matched;
      if (matched < length) continue;
      always = matches++ == 0 || same(at, next);
      next = at;
    }
    if (always && matches >= kPatternMatches) return same(next, index) ? 1 : 0;
  }
  return -1;
}

// Keeps the oldest open calls: half of them collectives, and of messages one per peer and way.
void FlightTracker::choose_open(const FlightName& name, FlightTrack& track,
                                const FlightDump& dump) {
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
    FlightCall call = call_of(entries_[index]);
    if (entries_[index].p2p) call.peer = global(name, entries_[index].operation.peer);
    if (index == chosen.front() && looks_left_ != 0) {
      --looks_left_;
      call.usual = usual(index);
    }
    if (call.timeout > 0 && call.created > 0 && dump.latest > call.created &&
        (dump.latest - call.created) / 1'000'000 >= call.timeout) {
      track.timed_out = true;
    }
    track.open.push_back(std::move(call));
  }
  if (newest != nullptr && newest->retired && newest->state != CallState::completed &&
      newest->seq == track.enqueued) {
    track.last = call_of(*newest);
    if (track.last.sizes.empty() && newest->signature != kNoId) {
      track.last.sizes = tables_.signatures[newest->signature].sizes;
      track.last.dtype = tables_.signatures[newest->signature].dtype;
    }
  }
}

constexpr std::size_t kMostCounters = 65'536;

// Returns the numbers of "[0, 1]", or of a list.
std::vector<std::int32_t> ranks_of(std::string_view text) {
  std::vector<std::int32_t> ranks;
  for (const char *at = text.data(), *const end = at + text.size(); at != end;) {
    if (*at < '0' || *at > '9') {
      ++at;
      continue;
    }
    std::int32_t rank = 0;
    const auto [stop, error] = std::from_chars(at, end, rank);
    if (error == std::errc() && rank < kMostFlightRanks) ranks.push_back(rank);
    at = stop;
  }
  return ranks;
}

std::string ranks_text(const Value& ranks, Visits& visits) {
  visits.spend(ranks.string().size());
  if (ranks.is(Kind::text)) return std::string(ranks.string());
  std::string text;
  for_each(ranks, visits, [&](const Value& rank) {
    text += (text.empty() ? "" : ",") + std::to_string(rank.is(Kind::integer) ? rank.integer : -1);
    return true;
  });
  return text;
}

}  // namespace

class FlightReader::Consumer {
 public:
  explicit Consumer(FlightTables& tables) : tables_(tables), taken_(tables, visits_) {}

  FlightDump read(std::string_view bytes);

 private:
  void root(const Value& value, FlightDump& dump);
  void configure(const Value& config, FlightDump& dump);
  void join(const Value& status, FlightDump& dump);
  void name_all();
  std::uint32_t group_id(const FlightName& name, std::string_view ranks);
  void number_by_order();
  void keep_newest(FlightName& name) const;

  FlightTables& tables_;
  Visits visits_;
  Builder builder_;
  FlightEntries taken_;
  std::vector<FlightEntry>& entries_ = taken_.entries;
  std::vector<FlightName>& names_ = taken_.names;
  std::unordered_map<std::int64_t, FlightCounters, MixedHash> statuses_;
  std::unordered_map<std::int64_t, std::uint32_t, MixedHash> name_of_pg_;
};

FlightReader::FlightReader(FlightTables& tables) : consumer_(new Consumer(tables)) {}
FlightReader::~FlightReader() = default;
FlightDump FlightReader::read(std::string_view bytes) { return consumer_->read(bytes); }

FlightDump FlightReader::Consumer::read(std::string_view bytes) {
  FlightDump dump;
  statuses_.clear();
  name_of_pg_.clear();
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  const char c = first == std::string_view::npos ? '\0' : bytes[first];
  const bool json = c == '{' || c == '[' || c == '\xef';
  taken_.begin(!json);
  builder_.begin(&taken_);
  visits_ = Visits::of_input(bytes.size());
  Value top;
  try {
    if (first == std::string_view::npos) throw Error("it is empty");
    top = json ? read_json(bytes, builder_) : read_pickle(bytes, builder_);
    dump.whole = true;
  } catch (const Error& error) {
    const std::string why = error.what();
    dump.notes.push_back(why);
    // What asks for code is not a dump that was cut off: nothing in it is believed.
    if (why.starts_with("refused")) return dump;
  }
  const bool cut_off = !dump.whole;
  try {
    // What was closed before is used, even if nothing more can be.
    if (cut_off) top = builder_.salvage();
    root(top, dump);
  } catch (const Error& error) {
    if (dump.notes.empty() || dump.notes.back() != error.what()) {
      dump.notes.emplace_back(error.what());
    }
    dump.readable = false;
  }
  if (cut_off && dump.readable) {
    dump.notes.back() += "; the " + std::to_string(dump.entries) + " entries before are used";
  }
  return dump;
}

std::uint32_t FlightReader::Consumer::group_id(const FlightName& name, std::string_view ranks) {
  std::string key = name.name;
  key += '\0';
  key += ranks;
  return tables_.groups.id(key, [&] {
    FlightGroup made;
    made.name = name.name;
    if (name.desc != "undefined") made.text = name.desc;
    made.ranks = ranks_of(ranks);
    return made;
  });
}

// Makes the groups of the config, and those that only entries name.
void FlightReader::Consumer::configure(const Value& config, FlightDump& dump) {
  for_each_pair(config, visits_, [&](const Value& key, const Value& about) {
    const Fields fields = fields_of(about, visits_);
    const Value& name = fields["name"_word].is(Kind::text) ? fields["name"_word] : key;
    const Value& desc = fields["desc"_word];
    const std::string text = ranks_text(fields["ranks"_word], visits_);
    visits_.spend(desc.string().size());
    // Gloo lists one group without a name and without ranks: it says nothing.
    if (name.string().empty() && text.size() <= 2) return;
    FlightName& made = names_[taken_.name_id(name.string(), desc.string())];
    if (made.desc.empty() || made.desc == "undefined") made.desc = kept_text(desc.string());
    if (made.group != kNoId) return;
    made.group = group_id(made, text);
    if (made.group != kNoId) dump.groups.push_back(made.group);
  });
  for (FlightName& name : names_) {
    if (name.group == kNoId) name.group = group_id(name, "");
  }
}

// Finds which counters of pg_status belong to which group. They are kept by a number that counts
// the groups of this process; entries name both, and groups that were made later have larger
// numbers and larger names.
void FlightReader::Consumer::join(const Value& status, FlightDump& dump) {
  std::vector<std::int64_t> ids;
  for_each_pair(status, visits_, [&](const Value& key, const Value& about) {
    const auto id = integer_in(key);
    if (!id || statuses_.size() >= kMostCounters) return;
    const Fields fields = fields_of(about, visits_);
    const auto number = [&](Word word) {
      return std::clamp<std::int64_t>(integer_in(fields[word]).value_or(-1), -1, kLargestFlightSeq);
    };
    const FlightCounters made{number("last_enqueued_collective"_word),
                              number("last_started_collective"_word),
                              number("last_completed_collective"_word)};
    if (statuses_.emplace(*id, made).second) ids.push_back(*id);
  });
  std::int64_t last = -1;  // neighbours are mostly of one group
  for (const FlightEntry& entry : entries_) {
    if (name_of_pg_.size() >= kMostCounters) break;
    if (entry.name == kNoId || entry.pg_id < 0 || entry.pg_id == last) continue;
    name_of_pg_.try_emplace(entry.pg_id, entry.name);
    last = entry.pg_id;
  }
  // By order: only if there are as many of both, and it agrees with all that entries say.
  std::vector<std::pair<std::int64_t, std::uint32_t>> numbered;
  for (std::uint32_t i = 0; i < names_.size(); ++i) {
    std::int64_t number = 0;
    const std::string& name = names_[i].name;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (name.empty() || error != std::errc() || stop != name.data() + name.size()) return;
    numbered.emplace_back(number, i);
  }
  if (numbered.size() != ids.size() || dump.groups.empty()) return;
  std::ranges::sort(numbered);
  std::ranges::sort(ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto known = name_of_pg_.find(ids[i]);
    if (known != name_of_pg_.end() && known->second != numbered[i].second) return;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) name_of_pg_.emplace(ids[i], numbered[i].second);
}

// torchcomms counts the operations of all its communicators together, from 0. Numbers them by
// their order in the group instead, which is known only if no entry is missing.
void FlightReader::Consumer::number_by_order() {
  bool several = false;
  for (const FlightEntry& entry : entries_) {
    const bool counted = entry.seq - entry.record == entries_.front().seq - entries_.front().record;
    if (!counted || entry.message != 0 || entry.name == kNoId || entry.p2p) return;
    if (names_[entry.name].desc != entry.operation.backend) return;
    several |= entry.name != entries_.front().name;
  }
  const bool complete = !entries_.empty() && entries_.front().record == 0;
  std::vector<std::int64_t> counts(names_.size(), 0);
  for (FlightEntry& entry : entries_) {
    entry.p2p = entry.operation.send || entry.operation.recv;
    if (entry.p2p) {
      entry.message = -1;
    } else if (!several) {
      ++entry.seq;
    } else {
      entry.seq = complete ? ++counts[entry.name] : -1;
    }
  }
}

// A group that was destroyed and made again has its old name, a larger number, and counts from 1.
// Leaves out what the buffer still holds of the older one.
void FlightReader::Consumer::keep_newest(FlightName& name) const {
  if (name.entries.empty()) return;
  const auto id_of = [&](std::uint32_t index) { return entries_[index].pg_id; };
  const std::int64_t newest = id_of(name.entries.back());
  const auto from = std::ranges::find(name.entries, newest, id_of);
  // Groups that are used in turn are not one after the other.
  const bool replaced = std::all_of(name.entries.begin(), from,
                                    [&](std::uint32_t index) {
                                      return id_of(index) >= 0 && id_of(index) < newest;
                                    }) &&
                        std::all_of(from, name.entries.end(),
                                    [&](std::uint32_t index) { return id_of(index) == newest; });
  if (replaced) name.entries.erase(name.entries.begin(), from);
}

void FlightReader::Consumer::root(const Value& value, FlightDump& dump) {
  const Fields fields = fields_of(value, visits_);
  // torch 2.2 wrote the entries alone.
  const Value& entries = value.is(Kind::list) ? value : fields["entries"_word];
  dump.version = kept_text(fields["version"_word].string());
  dump.host = kept_text(fields["hostname"_word].string());
  dump.rank = integer_in(fields["rank"_word]).value_or(-1);
  if (dump.rank >= kMostFlightRanks) dump.rank = -1;
  dump.pid = integer_in(fields["pid"_word]).value_or(-1);
  dump.world = std::min(integer_in(fields["world_size"_word]).value_or(-1), kMostFlightRanks);
  // Entries that were filled pair by pair were not taken on the way.
  std::vector<Value> pairs;
  for_each(entries, visits_, [&](const Value& entry) {
    if (!entry.is(Kind::dict)) return true;
    pairs.clear();
    for_each_pair(entry, visits_, [&](const Value& key, const Value& about) {
      pairs.push_back(key);
      pairs.push_back(about);
    });
    taken_.take(pairs);
    return true;
  });
  if (entries_.empty() && !fields.has("pg_config"_word) && !fields.has("pg_status"_word) &&
      !(fields.has("version"_word) && fields.has("entries"_word))) {
    dump.notes.emplace_back("no flight-recorder dump: it has no entries, pg_config or pg_status");
    return;
  }
  dump.readable = true;
  dump.entries = entries_.size();
  configure(fields["pg_config"_word], dump);
  join(fields["pg_status"_word], dump);
  for (FlightEntry& entry : entries_) {
    if (entry.name != kNoId) continue;
    const auto found = name_of_pg_.find(entry.pg_id);
    entry.name = found != name_of_pg_.end()
                     ? found->second
                     : taken_.name_id(std::to_string(std::max<std::int64_t>(entry.pg_id, 0)), "");
    if (names_[entry.name].group == kNoId) {
      names_[entry.name].group = group_id(names_[entry.name], "");
    }
  }
  if (!entries_.empty()) number_by_order();
  for (const auto& [id, of_name] : name_of_pg_) {
    FlightName& name = names_[of_name];
    const auto found = statuses_.find(id);
    // The newest, if groups of one name were made one after the other.
    if (found == statuses_.end() || id < name.pg_id) continue;
    name.pg_id = id;
    name.counters = found->second;
  }
  dump.contiguous = !entries_.empty();
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    dump.contiguous &= entries_[i].record == entries_[i - 1].record + 1;
  }
  dump.from_first = dump.contiguous && entries_.front().record == 0;
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    names_[entries_[i].name].entries.push_back(i);
    const std::int64_t created = entries_[i].created;
    if (created > 0 && dump.latest > 0) dump.pause = std::max(dump.pause, created - dump.latest);
    dump.latest = std::max(dump.latest, created);
  }
  for (FlightName& name : names_) keep_newest(name);
  FlightTracker tracker(tables_, entries_, visits_);
  for (const FlightName& name : names_) {
    if (name.group == kNoId) throw Error("the dumps name more groups than the limit");
    if (!name.entries.empty() || name.counters.enqueued >= 0) {
      dump.tracks.push_back(tracker.track(name, dump));
      dump.whole &= !dump.tracks.back().unseen;
    }
  }
}

}  // namespace oddrank
