// From the values of a dump to tracks: its groups, its counters, and who it is of.
#include "triage/flight_dump.hpp"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <utility>

#include "os/error.hpp"
#include "triage/flight_entry.hpp"
#include "triage/flight_json.hpp"
#include "triage/flight_pickle.hpp"
#include "triage/flight_track.hpp"
#include "triage/values.hpp"

namespace oddrank {
namespace {

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
  std::unordered_map<std::int64_t, FlightCounters, NumberHash> statuses_;
  std::unordered_map<std::int64_t, std::uint32_t, NumberHash> name_of_pg_;
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
    const Value& name = fields[Word::name].is(Kind::text) ? fields[Word::name] : key;
    const Value& desc = fields[Word::desc];
    const std::string text = ranks_text(fields[Word::ranks], visits_);
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
    const FlightCounters made{number(Word::last_enqueued), number(Word::last_started),
                              number(Word::last_completed)};
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
  const Value& entries = value.is(Kind::list) ? value : fields[Word::entries];
  dump.version = kept_text(fields[Word::version].string());
  dump.host = kept_text(fields[Word::hostname].string());
  dump.rank = integer_in(fields[Word::rank]).value_or(-1);
  if (dump.rank >= kMostFlightRanks) dump.rank = -1;
  dump.pid = integer_in(fields[Word::pid]).value_or(-1);
  dump.world = std::min(integer_in(fields[Word::world_size]).value_or(-1), kMostFlightRanks);
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
  if (entries_.empty() && !fields.has(Word::pg_config) && !fields.has(Word::pg_status) &&
      !(fields.has(Word::version) && fields.has(Word::entries))) {
    dump.notes.emplace_back("no flight-recorder dump: it has no entries, pg_config or pg_status");
    return;
  }
  dump.readable = true;
  dump.entries = entries_.size();
  configure(fields[Word::pg_config], dump);
  join(fields[Word::pg_status], dump);
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
