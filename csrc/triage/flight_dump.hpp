// Reads one flight-recorder dump and keeps what the comparison of ranks needs: of each operation
// its number, what it was and where it was called; of each group how far the rank has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace oddrank {

// Parts that many dumps share are kept once: groups, frames, stacks, signatures of operations.

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};
template <typename Mapped>
using TextMap = std::unordered_map<std::string, Mapped, TextHash, std::equal_to<>>;

// The properties that all ranks must issue alike. Two equal ones have one id.
struct FlightSignature {
  std::string op;
  std::string dtype;
  std::string sizes;  // of one rank: others may have another shape of as many elements
  std::int64_t elements = -1;
  std::int64_t group_size = 0;  // as the sizes show it; 0: they don't
  bool synchronises = false;
  bool coalesced = false;
};

struct FlightFrame {
  std::string function;
  std::string file;
  std::int64_t line = 0;
};

struct FlightGroup {
  std::string name;
  std::string text;
  std::vector<std::int32_t> ranks;  // in the order of the group's own ranks; empty: unknown
  bool whole_world() const { return text == "default_pg" || name == "default_pg"; }
};

inline constexpr std::uint32_t kNoId = UINT32_MAX;

// Texts to numbers from 0, for several threads.
template <typename Thing>
class Interned {
 public:
  explicit Interned(std::size_t most) : most_(most) {}

  // Returns the id of `key`; makes its thing by `make` at the first time. kNoId if it is full.
  template <typename Make>
  std::uint32_t id(std::string_view key, Make make) {
    const std::lock_guard lock(mutex_);
    if (const auto found = ids_.find(key); found != ids_.end()) return found->second;
    if (things_.size() >= most_) return kNoId;
    things_.push_back(std::make_unique<Thing>(make()));
    const auto made = static_cast<std::uint32_t>(things_.size() - 1);
    ids_.emplace(key, made);
    return made;
  }
  // Stays where it is for as long as this lives.
  Thing& operator[](std::uint32_t id) const {
    const std::lock_guard lock(mutex_);
    return *things_[id];
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return things_.size();
  }

 private:
  std::size_t most_;
  mutable std::mutex mutex_;
  TextMap<std::uint32_t> ids_;
  std::vector<std::unique_ptr<Thing>> things_;
};

struct FlightTables {
  Interned<FlightGroup> groups{std::size_t{4} << 20};
  Interned<FlightFrame> frames{std::size_t{1} << 18};
  Interned<std::vector<std::uint32_t>> stacks{std::size_t{1} << 16};  // ids of frames
  Interned<FlightSignature> signatures{std::size_t{1} << 20};
};

// Training repeats itself. Returns the last operation before `end` that followed the same history
// as the one at `end`, if one operation always followed that history, more than once; same(a, b):
// whether two are alike. Several lengths of history are tried in turn.
template <class Same>
std::optional<std::size_t> usual_next(std::size_t end, const Same& same) {
  for (const std::size_t length : {3, 8, 24}) {
    std::size_t matches = 0, next = 0;
    bool always = true;
    for (std::size_t at = length; at < end && always; ++at) {
      std::size_t matched = 0;
      while (matched < length && same(at - 1 - matched, end - 1 - matched)) ++matched;
      if (matched < length) continue;
      always = matches++ == 0 || same(at, next);
      next = at;
    }
    if (always && matches > 1) return next;
  }
  return {};
}

// Larger sequence numbers are taken for this one.
inline constexpr std::int64_t kLargestFlightSeq = std::int64_t{1} << 53;
// No job has as many: larger numbers are no ranks.
inline constexpr std::int64_t kMostFlightRanks = std::int64_t{1} << 22;

enum class CallState : std::uint8_t { enqueued, started, completed };

// An operation that its rank has not seen complete.
struct FlightCall {
  std::int64_t seq = -1;
  std::string op;
  std::int32_t peer = -1;  // global
  std::string dtype;
  std::string sizes;
  std::int64_t bytes = -1;
  CallState state = CallState::enqueued;
  std::int64_t created = 0;  // nanoseconds since 1970; 0: unknown
  std::int64_t timeout = 0;  // milliseconds
  std::uint32_t stack = kNoId;
  // Whether the rank always issued the same after the same calls before. -1: no pattern.
  std::int8_t usual = -1;
};

// A collective in a rank's buffer.
struct FlightRow {
  std::uint32_t seq;  // from the track's base
  std::uint32_t signature;
  std::uint32_t stack;
};

// A send or recv in a rank's buffer.
struct FlightMessage {
  std::int64_t seq;  // the group's number of such operations
  std::int32_t peer;
  bool send;
  bool open;
  std::uint32_t signature;
  std::uint32_t stack;
};

// A rank's progress in a group.
struct FlightTrack {
  static constexpr std::size_t kMostOpen = 8;
  // The meaning of pg_status's numbers: a counter may stand for collectives, for sends and
  // receives, or for all operations.
  enum class Status : std::uint8_t { none, collectives, others, unproven };

  std::uint32_t group = 0;
  std::string backend;
  std::int64_t enqueued = -1;
  std::int64_t completed = -1;
  Status status = Status::none;
  bool recorded = false;   // some operation of it is in the buffer
  bool confirmed = false;  // the state of completed operations is known to be success
  bool timed_out = false;
  bool unseen = false;  // operations of the group were not recorded: gloo leaves out messages
  std::vector<FlightCall> open;  // oldest first
  std::uint64_t open_count = 0;
  FlightCall last;        // the newest collective, if it is closed but not known to be a success
  std::int64_t base = 0;  // number of the first row
  std::vector<FlightRow> rows;
  std::vector<FlightMessage> messages;
  std::int32_t own = -1;  // the rank's number in the group, as its sends and receives show it
};

struct FlightDump {
  std::vector<std::string> notes;
  bool readable = false;
  bool whole = false;  // shows all that is open: nothing was cut off, no kind is left out
  std::string version;
  std::string host;
  std::int64_t rank = -1;   // as the dump itself says it
  std::int64_t named = -1;  // as the file's name says it
  std::int64_t pid = -1;
  std::int64_t world = -1;
  std::int64_t latest = 0;  // the newest time in it, nanoseconds since 1970
  std::int64_t pause = 0;   // the longest time between two operations, nanoseconds
  std::size_t entries = 0;
  bool contiguous = false;            // no operation between the first and the last is left out
  bool from_first = false;            // nor is any before: these are all of the process
  std::vector<std::uint32_t> groups;  // all that it lists
  std::vector<FlightTrack> tracks;
};

// Returns a function that reads dumps one after the other, pickles or JSON. A dump's faults are in
// its notes. Each thread needs its own; the tables are shared.
std::function<FlightDump(std::string_view)> flight_reader(FlightTables& tables);

}  // namespace oddrank
