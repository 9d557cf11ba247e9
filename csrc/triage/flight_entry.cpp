// Takes entries: what an operation was, which tensors it had, where it was called.
#include "triage/flight_entry.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "os/error.hpp"

namespace oddrank {
namespace {

constexpr std::size_t kMostGroupNames = 65'536;
constexpr std::size_t kMostEntries = std::size_t{4} << 20;
constexpr std::size_t kLongestText = 4096;
constexpr std::uint64_t kCopiesOfName = 4;  // of an operation's name that the tables keep

bool truth(const Value& value) {
  return (value.is(Kind::boolean) || value.is(Kind::integer)) && value.integer != 0;
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
FlightOperation operation_of(std::string_view text) {
  FlightOperation found;
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    found.backend = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  const std::size_t space = text.find(' ');
  found.name = text.substr(0, space);
  found.rule = op_rule(found.name);
  found.send = found.name == "send";
  found.recv = found.name.starts_with("recv");
  if (space == std::string_view::npos || (!found.send && !found.recv)) return found;
  text.remove_prefix(space + 1);
  const char* const end = text.data() + text.size();
  std::int32_t left = -1;
  std::int32_t right = -1;
  const auto [middle, bad] = std::from_chars(text.data(), end, left);
  if (bad != std::errc() || end - middle < 3) return found;
  const std::string_view arrow(middle, 2);
  const auto [stop, wrong] = std::from_chars(middle + 2, end, right);
  // A send is written 0->1, a recv 1<-0: the rank itself comes first.
  if (wrong == std::errc() && stop == end && left >= 0 && right >= 0 &&
      arrow == (found.send ? "->" : "<-")) {
    found.own = left;
    found.peer = right;
  }
  return found;
}

// Returns the address of the only text in a list, null if it has none or more.
const char* only_text(const Value& list) {
  if (!list.is(Kind::list) || list.items->count != 1) return nullptr;
  return list.items->first->values()[0].string().data();
}

}  // namespace

// Returns the integer of a value, or of its text: JSON dumps have counters as texts.
std::optional<std::int64_t> integer_in(const Value& value) {
  if (value.is(Kind::integer) || value.is(Kind::boolean)) return value.integer;
  const std::string_view text = value.string();
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || stop != text.data() + text.size()) return {};
  return number;
}

std::string kept_text(std::string_view text) { return std::string(text.substr(0, kLongestText)); }

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

std::string both_sizes(const Value& input, const Value& output, Visits& visits) {
  std::string in = sizes_text(input, visits);
  std::string out = sizes_text(output, visits);
  if (in.empty() || in == out) return out;
  return out.empty() ? in : in + " -> " + out;
}

// Returns the dtype of the tensors; those of several kinds in a row.
std::string dtypes_text(const Value& dtypes, Visits& visits) {
  std::string text;
  std::string_view last;
  for_each(dtypes, visits, [&](const Value& dtype) {
    const std::string_view name = dtype.string();
    if (name.empty() || name == last) return true;
    if (!text.empty()) text += ',';
    text += name.substr(0, 64);
    last = name;
    return text.size() < 128;
  });
  return text;
}

void FlightEntries::begin(bool shared_texts) {
  shared_texts_ = shared_texts;
  clear_for_reuse(entries);
  clear_for_reuse(names);
  name_ids_.clear();
  stacks_.clear();
  operations_.fill({});
  known_signatures_.fill({});
  last_name_ = last_desc_ = nullptr;
  last_id_ = kNoId;
}

const FlightOperation& FlightEntries::operation(std::string_view text) {
  const auto slot = (reinterpret_cast<std::uintptr_t>(text.data()) * 0x9e3779b97f4a7c15ULL) >> 58;
  auto& [at, known] = operations_[slot];
  if (at != text.data()) {
    at = text.data();
    known = operation_of(text.substr(0, kLongestText));
  }
  return known;
}

DictSink::Taken FlightEntries::take(std::span<const Value> pairs) {
  if (pairs.size() < 8) return Taken::no;
  FlightEntry entry;
  Fields fields;
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) fields.set(pairs[i], pairs[i + 1]);
  const Value& name = fields["profiling_name"_word];
  const Value& state = fields["state"_word];
  const auto number = [&](Word word) {
    return std::clamp<std::int64_t>(integer_in(fields[word]).value_or(-1), -1, kLargestFlightSeq);
  };
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
  entry.created = std::max<std::int64_t>(integer_in(fields["time_created_ns"_word]).value_or(0), 0);
  entry.timeout = std::max<std::int64_t>(number("timeout_ms"_word), 0);
  entry.retired = truth(fields["retired"_word]);
  entry.operation = operation(name.string());
  entry.p2p = fields.has("is_p2p"_word) ? truth(fields["is_p2p"_word]) : entry.operation.message();
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
  if (!group.is(Kind::none)) entry.name = name_of_entry(group_name, group_desc);
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
    entry.thread = fields["thread_name"_word];
  }
  entries.push_back(entry);
  return keep ? Taken::kept : Taken::yes;
}

// Both texts must live as long as the dump: most entries are of the group of the entry before, and
// have its very texts.
std::uint32_t FlightEntries::name_of_entry(std::string_view name, std::string_view desc) {
  if (last_id_ != kNoId && name.data() == last_name_ && desc.data() == last_desc_) return last_id_;
  last_id_ = name_id(name, desc);
  last_name_ = name.data();
  last_desc_ = desc.data();
  return last_id_;
}

std::uint32_t FlightEntries::name_id(std::string_view name, std::string_view desc) {
  name = name.substr(0, kLongestText);
  std::uint32_t id = kNoId;
  if (const auto found = name_ids_.find(name); found != name_ids_.end()) {
    id = found->second;
    if (names[id].desc.empty()) names[id].desc = kept_text(desc);
  } else {
    visits_.spend(name.size() + desc.size());
    if (names.size() >= kMostGroupNames) throw Error("it names more than 65,536 groups");
    id = static_cast<std::uint32_t>(names.size());
    FlightName made;
    made.name = name;
    made.desc = kept_text(desc);
    names.push_back(std::move(made));
    name_ids_.emplace(name, id);
  }
  return id;
}

std::uint32_t FlightEntries::signature_of(const FlightEntry& entry, const Value& input,
                                          const Value& output, const Value& dtypes) {
  const OpRule* const rule = entry.operation.rule;
  const std::string_view op = rule != nullptr ? rule->op : entry.operation.name;
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
  const std::uint64_t operation = reinterpret_cast<std::uintptr_t>(parts.operation);
  const std::uint64_t dtype = reinterpret_cast<std::uintptr_t>(parts.dtype);
  const std::uint64_t mixed =
      operation ^ std::rotl(dtype, 21) ^ std::rotl(static_cast<std::uint64_t>(elements), 42);
  KnownSignature& known = known_signatures_[mixed * 0x9e3779b97f4a7c15ULL >> 58];
  if (known.of != parts) {
    known = {parts, signature_by_text(entry, parts, input, output, dtypes)};
  }
  return known.id;
}

std::uint32_t FlightEntries::signature_by_text(const FlightEntry& entry, const Signed& parts,
                                               const Value& input, const Value& output,
                                               const Value& dtypes) {
  const OpRule* const rule = entry.operation.rule;
  const std::string_view op = rule != nullptr ? rule->op : entry.operation.name;
  key_.assign(op);
  key_ += '\0';
  if (rule != nullptr && rule->dtype) {
    const std::size_t from = key_.size();
    std::string_view last;
    for_each(dtypes, visits_, [&](const Value& dtype) {
      // NCCL sends booleans as bytes.
      const std::string_view name = dtype.string() == "Bool" ? "Byte" : dtype.string();
      if (name.empty() || name == last) return true;
      if (!last.empty()) key_ += ',';
      key_ += name.substr(0, 64);
      last = name;
      return key_.size() < from + 128;
    });
  }
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

std::uint32_t FlightEntries::stack_of(const Value& frames) {
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

}  // namespace oddrank
