// Reads the records that any thread may write: marks, begins and ends of collectives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/read/file.hpp"

namespace oddrank::trace {

struct Mark {
  std::uint64_t claim = 0;  // number among all marks, from 0
  std::uint64_t tsc = 0;
  std::uint64_t value = 0;
  std::uint32_t tid = 0;
  MarkKind kind = MarkKind::kMark;  // a broken file may hold any number
  std::string text;                 // the writer's bytes
};

struct CollectiveRecord : CollectiveFacts {
  std::uint64_t claim = 0;  // number among all, from 0; in the open table: `number`
  std::uint64_t tsc = 0;
  std::uint64_t number = 0;
  Phase phase = Phase::kBegin;  // a broken file may hold any number
};

// The records of a ring. A claimed record may be missing: overwritten, half written now, or left
// half written by a thread that died.
template <class Record>
struct Records {
  std::vector<Record> list;      // in the order of claims
  std::uint64_t claimed = 0;     // ever
  std::uint64_t unfinished = 0;  // claimed and not overwritten, but not in `list`
};

Records<Mark> read_marks(const RecordFile& file);
Records<CollectiveRecord> read_collectives(const RecordFile& file);
// Returns the open collectives, sorted by number. May miss one that began or ended meanwhile.
std::vector<CollectiveRecord> read_open_collectives(const RecordFile& file);

struct Collective : CollectiveFacts {
  enum class State : std::uint8_t {
    kOpen,    // no end was recorded before the file was read
    kEnded,   // or failed
    kIssued,  // handed to a device; its end is not recorded
    kTimed,   // of read_timed()
  };

  std::uint64_t number = 0;  // in its process, from 1
  State state = State::kOpen;
  std::optional<std::uint64_t> begin, end;  // ticks; `begin` is empty if overwritten
  bool failed = false;                      // it ended with an error

  std::optional<std::uint64_t> known_sequence() const noexcept {
    return sequence == kNoSequence ? std::nullopt : std::optional(sequence);
  }
  // Bytes that this rank puts in, and that it gets.
  std::uint64_t input() const noexcept;
  std::uint64_t output() const noexcept;
};

// Returns torch's name of a data type (float32), empty for an unknown one.
std::string_view name_of_type(std::uint16_t data_type) noexcept;
// Returns the type that torch calls so; kNoType for an unknown one.
std::uint16_t type_named(std::string_view name) noexcept;

// How far a group has come: its collectives, without send and recv.
struct GroupProgress {
  std::uint32_t group = 0;   // dictionary id
  std::uint64_t begun = 0;   // number of them
  std::uint64_t issued = 0;  // highest sequence number; 0: none
  std::uint64_t ended = 0;   // highest sequence number that has ended; 0: none
  std::uint64_t last = 0;    // ticks of the last begin
};

// Returns the groups that have begun a collective, by id.
std::vector<GroupProgress> read_progress(const RecordFile& file);

std::string_view name_of(Collective::State state) noexcept;

// Returns the newest calls whose time on a device is known. Their begins and ends are nanoseconds
// of the wall clock: when the call was issued, and as much later as it took on the device.
std::vector<Collective> read_timed(const RecordFile& file);

// Joins begins, ends and the table of open ones, in the order of issue. Later collectives never
// hide an open one.
std::vector<Collective> read_joined_collectives(const RecordFile& file);

}  // namespace oddrank::trace
