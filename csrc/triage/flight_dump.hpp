// Reads one flight-recorder dump and keeps what the comparison of ranks needs: of each operation
// its number, what it was and where it was called; of each group how far the rank has come.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "triage/flight_tables.hpp"

namespace oddrank {

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
  std::string thread;
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

// What a rank did in a group.
struct FlightTrack {
  static constexpr std::size_t kMostOpen = 8;
  // What the numbers of pg_status count: a counter may stand for collectives, for sends and
  // receives, or for all operations.
  enum class Status : std::uint8_t { none, collectives, others, unproven };

  std::uint32_t group = 0;
  std::string backend;
  std::int64_t enqueued = -1;
  std::int64_t started = -1;
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

// Reads dumps one after the other. One object a thread; the tables are shared.
class FlightReader {
 public:
  explicit FlightReader(FlightTables& tables);
  ~FlightReader();
  FlightReader(const FlightReader&) = delete;
  FlightReader& operator=(const FlightReader&) = delete;

  // Returns what a dump holds: a pickle or JSON. What is wrong with it is in its notes.
  FlightDump read(std::string_view bytes);

 private:
  class Consumer;
  std::unique_ptr<Consumer> consumer_;
};

}  // namespace oddrank
