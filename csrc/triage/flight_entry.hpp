// One operation of a flight recorder's buffer, taken from a dump's values as they are parsed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "triage/flight_dump.hpp"
#include "triage/flight_tables.hpp"
#include "triage/values.hpp"

namespace oddrank {

// Returns the integer of a value, or of its text: JSON dumps have counters as texts.
std::optional<std::int64_t> integer_in(const Value& value);
// Returns a text that is kept, cut to 4,096 bytes.
std::string kept_text(std::string_view text);

// Elements of all tensors, and how many tensors: of [[4, 3], [7]] 19 and 2.
struct FlightShape {
  std::int64_t elements = 0;
  std::size_t tensors = 0;
};
FlightShape shape_of(const Value& sizes, Visits& visits);
// Writes sizes as 2048x5120, input -> output where they differ, and only the first of many tensors.
std::string both_sizes(const Value& input, const Value& output, Visits& visits);
// Returns the dtype of the tensors; those of several kinds in a row.
std::string dtypes_text(const Value& dtypes, Visits& visits);

// "nccl:send 0->1", taken apart. own, peer: numbers in the group.
struct FlightOperation {
  std::string_view backend;
  std::string_view name;
  const OpRule* rule = nullptr;
  bool send = false;
  bool recv = false;
  std::int32_t own = -1;
  std::int32_t peer = -1;

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
  bool coalesced = false;               // the end of a group of operations
  bool inner = false;                   // an operation within one
  Value input, output, dtypes, thread;  // set while it may be open

  bool open() const noexcept { return state != CallState::completed && !retired; }
};

// The counters of pg_status; -1: unknown.
struct FlightCounters {
  std::int64_t enqueued = -1, started = -1, completed = -1;
};

// A group by the name that this dump gives it.
struct FlightName {
  std::string name, desc;
  std::uint32_t group = kNoId;
  std::int64_t pg_id = -1;
  FlightCounters counters;
  std::vector<std::uint32_t> entries;
};

// Collects the entries of one dump, and the names of its groups. Throws Error past its limits.
class FlightEntries final : public DictSink {
 public:
  FlightEntries(FlightTables& tables, Visits& visits) : tables_(tables), visits_(visits) {}

  // Forgets the dump before. shared_texts: its reader stores a repeated text once, so that texts
  // of two addresses are nearly always two texts.
  void begin(bool shared_texts);
  Taken take(std::span<const Value> pairs) override;
  // Returns the number of a group's name in this dump.
  std::uint32_t name_id(std::string_view name, std::string_view desc);

  std::vector<FlightEntry> entries;
  std::vector<FlightName> names;

 private:
  std::uint32_t name_of_entry(std::string_view name, std::string_view desc);
  const FlightOperation& operation(std::string_view text);
  // What a signature is made of, where texts of one address are one text.
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

  std::uint32_t signature_of(const FlightEntry& entry, const Value& input, const Value& output,
                             const Value& dtypes);
  std::uint32_t signature_by_text(const FlightEntry& entry, const Signed& parts, const Value& input,
                                  const Value& output, const Value& dtypes);
  std::uint32_t stack_of(const Value& frames);

  FlightTables& tables_;
  Visits& visits_;
  bool shared_texts_ = true;
  TextMap<std::uint32_t> name_ids_;
  const char* last_name_ = nullptr;
  const char* last_desc_ = nullptr;
  std::uint32_t last_id_ = kNoId;
  std::unordered_map<std::uint64_t, std::uint32_t> stacks_;
  TextMap<std::uint32_t> signatures_;  // of all dumps that this has read
  std::array<std::pair<const char*, FlightOperation>, 64> operations_;
  std::array<KnownSignature, 64> known_signatures_;  // of this dump
  std::string key_;
};

}  // namespace oddrank
