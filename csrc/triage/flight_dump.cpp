// Turns the values of a dump into tracks: its operations, its groups and their counters, and its
// rank. Entries are taken as they are parsed: what an operation was, which tensors it had, where
// it was called.
#include "triage/flight_dump.hpp"

#include <bit>
#include <charconv>
#include <limits>
#include <unordered_set>

#include "logs/patterns.hpp"
#include "os/mix.hpp"
#include "triage/values.hpp"

namespace oddrank {
namespace {

// How an operation is called, and which sizes all ranks must have in common.
struct OpRule {
  enum class Sizes : std::uint8_t { none, input, output };

  std::string_view recorded;  // as backends record it
  std::string_view op;        // as users call it
  Sizes sizes = Sizes::none;
  bool dtype = true;         // whether all ranks must have the same
  bool synchronises = true;  // no rank gets out before all are in
};

using Sizes = OpRule::Sizes;

// Compares only properties that are equal on all ranks of a right program: not outputs of which
// only the root has one, and not splits that each rank chooses.
constexpr std::array kRules{
    OpRule{"all_reduce", "all_reduce", Sizes::input},
    OpRule{"allreduce", "all_reduce", Sizes::input},
    OpRule{"allreduce_coalesced", "all_reduce_coalesced", Sizes::input},
    OpRule{"all_reduce_sparse", "all_reduce", Sizes::none},
    OpRule{"all_reduce_barrier", "barrier", Sizes::none, false},
    OpRule{"barrier", "barrier", Sizes::none, false},
    OpRule{"monitored_barrier", "monitored_barrier", Sizes::none, false},
    OpRule{"broadcast", "broadcast", Sizes::input, true, false},
    OpRule{"_broadcast_oop", "broadcast", Sizes::input, true, false},
    OpRule{"reduce", "reduce", Sizes::input, true, false},
    OpRule{"_reduce_oop", "reduce", Sizes::input, true, false},
    OpRule{"all_gather", "all_gather", Sizes::input},
    OpRule{"allgather", "all_gather", Sizes::input},
    OpRule{"_all_gather_base", "all_gather_into_tensor", Sizes::input},
    OpRule{"all_gather_single", "all_gather_into_tensor", Sizes::input},
    OpRule{"all_gather_v", "all_gather", Sizes::none},
    OpRule{"all_gather_into_tensor_coalesced", "all_gather_into_tensor_coalesced", Sizes::input},
    OpRule{"ALLGATHER_coalesced", "all_gather_into_tensor_coalesced", Sizes::none},
    OpRule{"reduce_scatter", "reduce_scatter", Sizes::input},
    OpRule{"_reduce_scatter_base", "reduce_scatter_tensor", Sizes::input},
    OpRule{"reduce_scatter_single", "reduce_scatter_tensor", Sizes::input},
    OpRule{"reduce_scatter_v", "reduce_scatter", Sizes::input},
    OpRule{"reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_coalesced", Sizes::input},
    OpRule{"REDUCE_SCATTER_coalesced", "reduce_scatter_tensor_coalesced", Sizes::none},
    OpRule{"gather", "gather", Sizes::input, true, false},
    OpRule{"gather_single", "gather", Sizes::input, true, false},
    OpRule{"scatter", "scatter", Sizes::output, true, false},
    OpRule{"all_to_all", "all_to_all", Sizes::none},
    OpRule{"all_to_all_single", "all_to_all_single", Sizes::none},
    OpRule{"all_to_all_v_single", "all_to_all_single", Sizes::none},
    OpRule{"alltoall_base", "all_to_all_single", Sizes::none},
    OpRule{"send", "send", Sizes::none, true, false},
    OpRule{"recv", "recv", Sizes::none, true, false},
    OpRule{"recv_any_source", "recv", Sizes::none, true, false},
    OpRule{"coalesced", "coalesced", Sizes::none, false, false},
};

// Returns the size of an element of a dtype as torch writes it ("BFloat16"), 0 if unknown.
std::int64_t dtype_bytes(const std::string& dtype) {
  static constexpr std::pair<std::int64_t, std::string_view> kDtypes[] = {
      {1,
       " Byte Char Bool QInt8 QUInt8 Float8_e5m2 Float8_e4m3fn Float8_e5m2fnuz Float8_e4m3fnuz "
       "Float8_e8m0fnu "},
      {2, " Short Half BFloat16 UInt16 "},
      {4, " Int Float ComplexHalf UInt32 QInt32 "},
      {8, " Long Double ComplexFloat UInt64 "},
      {16, " ComplexDouble "}};
  for (const auto& [bytes, names] : kDtypes) {
    if (names.find(" " + dtype + " ") != std::string_view::npos) return bytes;
  }
  return 0;
}

constexpr std::size_t kMostGroupNames = 65'536;
constexpr std::size_t kMostEntries = std::size_t{4} << 20;
constexpr std::size_t kLongestText = 4096;
constexpr std::uint64_t kCopiesOfName = 4;  // of an operation's name that the tables keep

// Returns the number that a text is, and nothing else.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.begin(), text.end(), number);
  return error == std::errc() && stop == text.end() ? std::optional(number) : std::nullopt;
}

// Returns the integer of a value, or of its text: JSON dumps have counters as texts.
std::optional<std::int64_t> integer_in(const Value& value) {
  if (value.is(Kind::integer) || value.is(Kind::boolean)) return value.integer;
  return whole_number(value.string());
}

// Returns a counter, -1 if it is not known.
std::int64_t count_in(const Value& value) {
  return std::clamp<std::int64_t>(integer_in(value).value_or(-1), -1, kLargestFlightSeq);
}

bool truth(const Value& value) {
  return (value.is(Kind::boolean) || value.is(Kind::integer)) && value.integer != 0;
}

// Returns a text that is kept.
std::string kept_text(std::string_view text) { return std::string(text.substr(0, kLongestText)); }

// Elements of all tensors, and how many tensors: of [[4, 3], [7]] 19 and 2.
struct FlightShape {
  std::int64_t elements = 0;
  std::size_t tensors = 0;
};

FlightShape shape_of(const Value& sizes, Visits& visits) {
  FlightShape shape;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  for_each(sizes, visits, [&](const Value& tensor) {
    std::int64_t elements = 1;
    for_each(tensor, visits, [&](const Value& size) {
      const std::int64_t length =
          std::max<std::int64_t>(size.is(Kind::integer) ? size.integer : 0, 0);
      elements = length != 0 && elements > kMost / length ? kMost : elements * length;
      return true;
    });
    ++shape.tensors;
    shape.elements = shape.elements > kMost - elements ? kMost : shape.elements + elements;
    return true;
  });
  return shape;
}

// Writes sizes as 2048x5120, and only the first of many tensors.
std::string sizes_text(const Value& sizes, Visits& visits) {
  std::string text;
  std::size_t count = 0;
  for_each(sizes, visits, [&](const Value& tensor) {
    if (count++ == 4) {
      text += ", ...";
      return false;
    }
    if (!text.empty()) text += ", ";
    std::size_t dimensions = 0;
    for_each(tensor, visits, [&](const Value& size) {
      if (dimensions++ != 0) text += 'x';
      text += std::to_string(size.is(Kind::integer) ? size.integer : 0);
      return dimensions < 16;
    });
    if (dimensions == 0) text += "scalar";
    return true;
  });
  return text;
}

// The same of both sides, input -> output where they differ.
std::string both_sizes(const Value& input, const Value& output, Visits& visits) {
  std::string in = sizes_text(input, visits);
  std::string out = sizes_text(output, visits);
  if (in.empty() || in == out) return out;
  return out.empty() ? in : in + " -> " + out;
}

// Appends the dtype of the tensors; if they differ, all in a row. as_sent: NCCL sends booleans
// as bytes.
void append_dtypes(const Value& dtypes, bool as_sent, std::string& text, Visits& visits) {
  const std::size_t from = text.size();
  std::string_view last;
  for_each(dtypes, visits, [&](const Value& dtype) {
    std::string_view name = dtype.string();
    if (as_sent && name == "Bool") name = "Byte";
    if (name.empty() || name == last) return true;
    if (!last.empty()) text += ',';
    text += name.substr(0, 64);
    last = name;
    return text.size() < from + 128;
  });
}

// "nccl:send 0->1", taken apart. own, peer: numbers in the group.
struct FlightOperation {
  std::string_view backend;
  std::string_view name;
  const OpRule* rule = nullptr;
  bool send = false;
  bool recv = false;
  std::int32_t own = -1;
  std::int32_t peer = -1;

  // As users call it.
  std::string_view op() const noexcept { return rule != nullptr ? rule->op : name; }
  bool message() const noexcept { return send || recv; }
  // Names the peer and whether it is sent to.
  std::int64_t way() const noexcept { return 2 * std::int64_t{peer} + (send ? 1 : 0); }
};

struct FlightEntry {
  std::int64_t seq = -1;      // of collectives
  std::int64_t message = -1;  // of sends and receives
  std::int64_t op_id = -1;
  std::int64_t record = -1;
  std::int64_t pg_id = -1;
  std::int64_t created = 0;
  std::int64_t timeout = 0;
  std::uint32_t name = kNoId;  // of the group, in this dump
  std::uint32_t signature = kNoId;
  std::uint32_t stack = kNoId;
  FlightOperation operation;
  CallState state = CallState::enqueued;
  bool retired = false;
  bool p2p = false;
  bool coalesced = false;       // the end of a group of operations
  bool inner = false;           // an operation within one
  Value input, output, dtypes;  // set while it may be open

  bool open() const noexcept { return state != CallState::completed && !retired; }
};

// The counters of pg_status; -1: unknown.
struct FlightCounters {
  std::int64_t enqueued = -1, completed = -1;
};

// A group by the name that this dump gives it.
struct FlightName {
  std::string name, desc;
  std::uint32_t group = kNoId;
  std::int64_t pg_id = -1;
  FlightCounters counters;
  std::vector<std::uint32_t> entries;
};

FlightOperation operation_of(std::string_view text) {
  FlightOperation found;
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    found.backend = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  const std::size_t space = text.find(' ');
  found.name = text.substr(0, space);
  const auto* const rule = std::ranges::find(kRules, found.name, &OpRule::recorded);
  found.rule = rule == kRules.end() ? nullptr : rule;
  found.send = found.name == "send";
  found.recv = found.name.starts_with("recv");
  if (space == std::string_view::npos) return found;
  text.remove_prefix(space);
  std::int64_t own = 0, peer = 0;
  // A send is written 0->1, a recv 1<-0: the rank itself comes first.
  const bool named = (found.send && logs::take<" %9->%9">(text, own, peer)) ||
                     (found.recv && logs::take<" %9<-%9">(text, own, peer));
  if (named && text.empty()) {
    found.own = static_cast<std::int32_t>(own);
    found.peer = static_cast<std::int32_t>(peer);
  }
  return found;
}

// Returns the address of the only text in a list, null if it has none or more.
const char* only_text(const Value& list) {
  if (!list.is(Kind::list) || list.items->count != 1) return nullptr;
  return list.items->first->values()[0].string().data();
}

// Collects the entries of one dump, and the names of its groups. Throws Error past its limits.
class FlightEntries final : public DictSink {
 public:
  FlightEntries(FlightTables& tables, Visits& visits) : tables_(tables), visits_(visits) {}

  // Forgets the dump before. shared_texts: its reader stores a repeated text once, so that texts
  // of two addresses are nearly always two texts.
  void begin(bool shared_texts) {
    shared_texts_ = shared_texts;
    clear_for_reuse(entries);
    clear_for_reuse(names);
    name_ids_.clear();
    stacks_.clear();
    operations_.fill({});
    known_signatures_.fill({});
  }

  Taken take(std::span<const Value> pairs) override {
    if (pairs.size() < 8) return Taken::no;
    FlightEntry entry;
    Fields fields;
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) fields.set(pairs[i], pairs[i + 1]);
    const Value& name = fields["profiling_name"_word];
    const Value& state = fields["state"_word];
    const auto number = [&](Word word) { return count_in(fields[word]); };
    // Before version 2.1 one number counted collectives and messages.
    const bool one_counter = !fields.has("collective_seq_id"_word);
    entry.seq = number(one_counter ? "seq_id"_word : "collective_seq_id"_word);
    entry.message = number(one_counter ? "seq_id"_word : "p2p_seq_id"_word);
    if (!name.is(Kind::text) || !state.is(Kind::text)) return Taken::no;
    if (entry.seq < 0 && entry.message < 0) return Taken::no;
    if (entries.size() >= kMostEntries) throw Error("it holds more than 4,194,304 entries");
    entry.op_id = number("op_id"_word);
    entry.record = number("record_id"_word);
    entry.pg_id = number("pg_id"_word);
    entry.created =
        std::max<std::int64_t>(integer_in(fields["time_created_ns"_word]).value_or(0), 0);
    entry.timeout = std::max<std::int64_t>(number("timeout_ms"_word), 0);
    entry.retired = truth(fields["retired"_word]);
    entry.operation = operation(name.string());
    entry.p2p =
        fields.has("is_p2p"_word) ? truth(fields["is_p2p"_word]) : entry.operation.message();
    if (one_counter && entry.p2p) entry.seq = -1;
    entry.coalesced = entry.operation.name == "coalesced";
    const std::string_view word = state.string();
    entry.state = word == "completed" ? CallState::completed
                  : word == "started" ? CallState::started
                                      : CallState::enqueued;
    const Value& group = fields["process_group"_word];
    std::string_view group_name;
    std::string_view group_desc;
    if (group.is(Kind::text)) {
      group_name = group.string();
    } else {
      std::size_t count = 0;
      for_each(group, visits_, [&](const Value& part) {
        (count++ == 0 ? group_name : group_desc) = part.string();
        return count < 2;
      });
    }
    if (!group.is(Kind::none)) entry.name = name_id(group_name, group_desc);
    const Value& in_dtypes = fields["input_dtypes"_word];
    const Value& dtypes = in_dtypes.is(Kind::list) && in_dtypes.items->count > 0
                              ? in_dtypes
                              : fields["output_dtypes"_word];
    entry.signature =
        signature_of(entry, fields["input_sizes"_word], fields["output_sizes"_word], dtypes);
    if (fields.has("frames"_word)) entry.stack = stack_of(fields["frames"_word]);
    const bool keep = entry.open();
    if (keep) {
      entry.input = fields["input_sizes"_word];
      entry.output = fields["output_sizes"_word];
      entry.dtypes = dtypes;
    }
    entries.push_back(entry);
    return keep ? Taken::kept : Taken::yes;
  }

  // Returns the number of a group's name in this dump.
  std::uint32_t name_id(std::string_view name, std::string_view desc) {
    name = name.substr(0, kLongestText);
    if (const auto found = name_ids_.find(name); found != name_ids_.end()) {
      std::string& known = names[found->second].desc;
      if (known.empty()) known = kept_text(desc);
      return found->second;
    }
    visits_.spend(name.size() + desc.size());
    if (names.size() >= kMostGroupNames) throw Error("it names more than 65,536 groups");
    FlightName& made = names.emplace_back();
    made.name = name;
    made.desc = kept_text(desc);
    return name_ids_[made.name] = static_cast<std::uint32_t>(names.size() - 1);
  }

  std::vector<FlightEntry> entries;
  std::vector<FlightName> names;

 private:
  // The parts of a signature, where texts of one address are one text.
  struct Signed {
    const char* operation = nullptr;
    const char* dtype = nullptr;  // of the only tensor
    std::int64_t elements = 0;
    std::int64_t group_size = 0;
    bool operator==(const Signed&) const = default;
  };
  struct KnownSignature {
    Signed of;
    std::uint32_t id = kNoId;
  };

  const FlightOperation& operation(std::string_view text) {
    const auto slot = (reinterpret_cast<std::uintptr_t>(text.data()) * 0x9e3779b97f4a7c15ULL) >> 58;
    auto& [at, known] = operations_[slot];
    if (at != text.data()) {
      at = text.data();
      known = operation_of(text.substr(0, kLongestText));
    }
    return known;
  }

  std::uint32_t signature_of(const FlightEntry& entry, const Value& input, const Value& output,
                             const Value& dtypes) {
    const OpRule* const rule = entry.operation.rule;
    const std::string_view op = entry.operation.op();
    const FlightShape in = shape_of(input, visits_);
    const FlightShape out = shape_of(output, visits_);
    std::int64_t elements = -1;
    if (entry.operation.message() || (rule != nullptr && rule->sizes == OpRule::Sizes::input)) {
      elements = in.tensors != 0 ? in.elements : out.elements;
    } else if (rule != nullptr && rule->sizes == OpRule::Sizes::output) {
      elements = out.elements;
    }
    std::int64_t group_size = 0;
    if (in.elements > 0 && out.elements > 0) {
      if (op.starts_with("all_gather") && out.elements % in.elements == 0) {
        group_size = out.elements / in.elements;
      } else if (op.starts_with("reduce_scatter") && in.elements % out.elements == 0) {
        group_size = in.elements / out.elements;
      }
    }
    const Signed parts{entry.operation.name.data(), only_text(dtypes), elements, group_size};
    if (parts.dtype == nullptr) return signature_by_text(entry, parts, input, output, dtypes);
    const std::uint64_t mixed = reinterpret_cast<std::uintptr_t>(parts.operation) ^
                                std::rotl(reinterpret_cast<std::uintptr_t>(parts.dtype), 21) ^
                                std::rotl(static_cast<std::uint64_t>(elements), 42);
    KnownSignature& known = known_signatures_[mixed * 0x9e3779b97f4a7c15ULL >> 58];
    if (known.of != parts) {
      known = {parts, signature_by_text(entry, parts, input, output, dtypes)};
    }
    return known.id;
  }

  std::uint32_t signature_by_text(const FlightEntry& entry, const Signed& parts, const Value& input,
                                  const Value& output, const Value& dtypes) {
    const OpRule* const rule = entry.operation.rule;
    const std::string_view op = entry.operation.op();
    key_.assign(op);
    key_ += '\0';
    if (rule != nullptr && rule->dtype) append_dtypes(dtypes, true, key_, visits_);
    const std::size_t dtype_end = key_.size();
    key_.append(reinterpret_cast<const char*>(&parts.elements), sizeof parts.elements);
    key_.append(reinterpret_cast<const char*>(&parts.group_size), sizeof parts.group_size);
    if (const auto found = signatures_.find(key_); found != signatures_.end()) return found->second;
    visits_.spend(kCopiesOfName * key_.size());
    const std::uint32_t id = tables_.signatures.id(key_, [&] {
      FlightSignature made;
      made.op = op.substr(0, kLongestText);
      made.dtype = std::string_view(key_).substr(op.size() + 1, dtype_end - op.size() - 1);
      made.elements = parts.elements;
      made.group_size = parts.group_size;
      made.synchronises = rule != nullptr && rule->synchronises;
      made.coalesced = entry.coalesced;
      if (parts.elements >= 0) made.sizes = both_sizes(input, output, visits_);
      return made;
    });
    signatures_.emplace(key_, id);
    return id;
  }

  std::uint32_t stack_of(const Value& frames) {
    constexpr std::size_t kDeepest = 256;
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    const auto mix = [&hash](std::uint64_t bits) {
      hash = std::rotl((hash ^ bits) * 0x9fb21c651e98df25ULL, 29);
    };
    std::size_t depth = 0;
    for_each(frames, visits_, [&](const Value& frame) {
      for_each_pair(frame, visits_, [&](const Value& key, const Value& value) {
        mix(static_cast<std::uint64_t>(key.word));
        if (!value.is(Kind::text)) {
          mix(static_cast<std::uint64_t>(value.integer));
        } else if (shared_texts_) {
          mix(std::bit_cast<std::uint64_t>(value.text));
        } else {
          mix(TextHash()(value.string()));
        }
      });
      return ++depth < kDeepest;
    });
    if (depth == 0) return kNoId;
    const auto [found, added] = stacks_.emplace(hash, kNoId);
    if (!added) return found->second;
    std::vector<std::uint32_t> made;
    for_each(frames, visits_, [&](const Value& frame) {
      std::string_view function;
      std::string_view file;
      std::int64_t line = 0;
      for_each_pair(frame, visits_, [&](const Value& what, const Value& value) {
        if (what.word == "name"_word) function = value.string().substr(0, kLongestText);
        if (what.word == "filename"_word) file = value.string().substr(0, kLongestText);
        if (what.word == "line"_word) line = integer_in(value).value_or(0);
      });
      visits_.spend(function.size() + file.size());
      key_.assign(function).append(1, '\0').append(file).append(1, '\0');
      key_ += std::to_string(line);
      const std::uint32_t id = tables_.frames.id(key_, [&] {
        return FlightFrame{std::string(function), std::string(file), line};
      });
      if (id != kNoId) made.push_back(id);
      return made.size() < kDeepest;
    });
    key_.assign(reinterpret_cast<const char*>(made.data()), made.size() * sizeof made.front());
    found->second = tables_.stacks.id(key_, [&] { return std::move(made); });
    return found->second;
  }

  FlightTables& tables_;
  Visits& visits_;
  bool shared_texts_ = true;
  TextMap<std::uint32_t> name_ids_;
  std::unordered_map<std::uint64_t, std::uint32_t> stacks_;
  TextMap<std::uint32_t> signatures_;  // of all dumps that this has read
  std::array<std::pair<const char*, FlightOperation>, 64> operations_;
  std::array<KnownSignature, 64> known_signatures_;  // of this dump
  std::string key_;
};

// Makes tracks of entries: what a rank did in one group. Marks entries as closed that others prove
// closed.
class FlightTracker {
 public:
  FlightTracker(FlightTables& tables, std::vector<FlightEntry>& entries, Visits& visits)
      : tables_(tables), entries_(entries), visits_(visits) {}

  FlightTrack track(const FlightName& name, const FlightDump& dump) {
    FlightTrack made;
    made.group = name.group;
    const FlightCounters& counters = name.counters;
    if (name.entries.empty()) {
      made.status = FlightTrack::Status::unproven;
      made.enqueued = counters.enqueued;
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

 private:
  void close_groups(const FlightName& name) {
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

  std::int32_t global(const FlightName& name, std::int32_t own) const {
    const FlightGroup& group = tables_.groups[name.group];
    if (own < 0) return -1;
    if (group.ranks.empty()) return name.desc == "default_pg" || name.name == "0" ? own : -1;
    const auto index = static_cast<std::size_t>(own);
    return index < group.ranks.size() ? group.ranks[index] : -1;
  }

  // The newest operation shows what the counters of its group count. If the host is still inside
  // the call, the one before it does: a counter moves when the call returns.
  FlightTrack::Status what_counters_count(const FlightName& name) const {
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
  void close_done(const FlightName& name, FlightTrack& track) {
    const bool counted = track.status == FlightTrack::Status::collectives;
    std::int64_t done = counted ? name.counters.completed : -1;
    track.enqueued = counted ? name.counters.enqueued : -1;
    for (const std::uint32_t index : name.entries) {
      const FlightEntry& entry = entries_[index];
      if (entry.seq < 0) continue;
      // A message carries the number of the last collective before it.
      track.enqueued = std::max(track.enqueued, entry.seq);
      if (entry.p2p || entry.inner) continue;
      if (entry.state != CallState::completed) continue;
      track.confirmed = true;
      if (track.backend != "gloo") done = std::max(done, entry.seq);
    }
    for (const std::uint32_t index : name.entries) {
      FlightEntry& entry = entries_[index];
      if (!entry.p2p && entry.seq >= 0 && entry.seq <= done) entry.retired = true;
    }
  }

  static void add_row(const FlightEntry& entry, FlightTrack& track) {
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
  void messages(const FlightName& name, FlightTrack& track) {
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

  FlightCall call_of(const FlightEntry& entry) const {
    FlightCall call;
    call.op = entry.operation.op();
    call.seq = entry.p2p ? -1 : entry.seq;
    append_dtypes(entry.dtypes, false, call.dtype, visits_);
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
    return call;
  }

  // Training repeats itself: returns whether an entry is the one that always followed the entries
  // before it, in all groups together.
  std::int8_t usual(std::uint32_t index) const {
    const auto same = [&](std::size_t one, std::size_t two) {
      const FlightEntry& a = entries_[one];
      const FlightEntry& b = entries_[two];
      return a.name == b.name && a.signature == b.signature && a.p2p == b.p2p &&
             a.operation.name == b.operation.name && a.operation.peer == b.operation.peer;
    };
    const auto usual = usual_next(index, same);
    return usual ? static_cast<std::int8_t>(same(*usual, index)) : std::int8_t{-1};
  }

  // Keeps the oldest open calls: half of them collectives, and of messages one per peer and way.
  void choose_open(const FlightName& name, FlightTrack& track, const FlightDump& dump) {
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

  // A hostile dump may have as many groups as operations, and each look reads all operations.
  static constexpr std::size_t kMostLooks = 64;

  FlightTables& tables_;
  std::vector<FlightEntry>& entries_;
  Visits& visits_;
  std::size_t looks_left_ = kMostLooks;
};

constexpr std::size_t kMostCounters = 65'536;

// Returns the numbers of "[0, 1]", or of a list.
std::vector<std::int32_t> ranks_of(std::string_view text) {
  std::vector<std::int32_t> ranks;
  while (!text.empty()) {
    text.remove_prefix(std::min(text.find_first_of("0123456789"), text.size()));
    std::int32_t rank = 0;
    const auto [stop, error] = std::from_chars(text.begin(), text.end(), rank);
    if (error == std::errc() && rank < kMostFlightRanks) ranks.push_back(rank);
    text.remove_prefix(static_cast<std::size_t>(stop - text.begin()));
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

// Reads dumps one after the other.
class FlightReader {
 public:
  explicit FlightReader(FlightTables& tables) : tables_(tables), taken_(tables, visits_) {}

  FlightDump read(std::string_view bytes) {
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
      // A dump that asks for code was not cut off: nothing in it is believed.
      if (why.starts_with("refused")) return dump;
    }
    const bool cut_off = !dump.whole;
    try {
      // Parts that were closed before are used, even if nothing more can be.
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

 private:
  std::uint32_t group_id(const FlightName& name, std::string_view ranks) {
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
  void configure(const Value& config, FlightDump& dump) {
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
  void join(const Value& status, FlightDump& dump) {
    std::vector<std::int64_t> ids;
    for_each_pair(status, visits_, [&](const Value& key, const Value& about) {
      const auto id = integer_in(key);
      if (!id || statuses_.size() >= kMostCounters) return;
      const Fields fields = fields_of(about, visits_);
      const auto number = [&](Word word) { return count_in(fields[word]); };
      const FlightCounters made{number("last_enqueued_collective"_word),
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
      const auto number = whole_number(names_[i].name);
      if (!number) return;
      numbered.emplace_back(*number, i);
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
  void number_by_order() {
    bool several = false;
    for (const FlightEntry& entry : entries_) {
      const bool counted =
          entry.seq - entry.record == entries_.front().seq - entries_.front().record;
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
  void keep_newest(FlightName& name) const {
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

  void root(const Value& value, FlightDump& dump) {
    const Fields fields = fields_of(value, visits_);
    dump.version = kept_text(fields["version"_word].string());
    dump.host = kept_text(fields["hostname"_word].string());
    dump.rank = integer_in(fields["rank"_word]).value_or(-1);
    if (dump.rank >= kMostFlightRanks) dump.rank = -1;
    dump.pid = integer_in(fields["pid"_word]).value_or(-1);
    dump.world = std::min(integer_in(fields["world_size"_word]).value_or(-1), kMostFlightRanks);
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

  FlightTables& tables_;
  Visits visits_;
  Builder builder_;
  FlightEntries taken_;
  std::vector<FlightEntry>& entries_ = taken_.entries;
  std::vector<FlightName>& names_ = taken_.names;
  std::unordered_map<std::int64_t, FlightCounters, MixedHash> statuses_;
  std::unordered_map<std::int64_t, std::uint32_t, MixedHash> name_of_pg_;
};

}  // namespace

std::function<FlightDump(std::string_view)> flight_reader(FlightTables& tables) {
  return [reader = std::make_shared<FlightReader>(tables)](std::string_view bytes) {
    return reader->read(bytes);
  };
}

}  // namespace oddrank
