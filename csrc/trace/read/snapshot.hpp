// Reads a record as one value, with names and lines: what its process does now or did last
// (Snapshot), its last events (History). Or copies the parts that this needs (slim.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/read/dictionary.hpp"
#include "trace/read/file.hpp"
#include "trace/read/records.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {

// A position in the code. Texts are the writer's bytes.
struct Frame {
  std::string function;
  std::string file;
  std::optional<std::uint32_t> line;  // empty: only calls recorded, or no entry in the line table
  LevelNow now;                       // if the line is empty since its code ran too often
};

struct ThreadNow {
  Thread thread;
  std::vector<Frame> stack;  // outermost first
  Time last;                 // when its last event was recorded
  Time sampled;              // when lines of its stack were sampled; empty: none was
};

struct Snapshot {
  Process process;
  HeaderCopy header;
  Liveness life = Liveness::kUnknown;
  std::vector<ClockPicture> clocks;
  Clock clock;  // of all ticks here
  std::vector<ThreadNow> threads;
  std::vector<Collective> open;
  std::optional<Collective> last;     // the last one issued that is not open
  std::vector<GroupProgress> groups;  // by id in `names`
  std::optional<Dictionary> names;
  std::vector<Mark> sections;  // begun and not ended, outermost first
  Time step;                   // when the last step() was called
  Time last_event;             // of any thread, mark or collective
  Time sampled_since;          // since when no code gives events; empty: code does
  Time gil_asked;              // since when the sampler waits for the GIL, if it does
  Time gil_wanted;             // since when the GIL is held, if for long; else empty
  std::string trouble;         // why parts of the file could not be read; "": all could
};

struct HistoryEvent {
  std::uint64_t tsc = 0;
  Time time;
  std::uint32_t tid = 0;
  Kind kind = Kind::kNone;  // kNone: a mark
  Frame frame;
  std::string mark;  // its text; "step N" for a step; of kLevel the level's name
};

struct History {
  Process process;
  Clock clock;
  std::vector<HistoryEvent> events;  // oldest first
  std::string trouble;               // fault of the dictionary; empty if there is none
};

// Maps ids to names and offsets to lines, for one record. Keeps decoded line tables.
class Names {
 public:
  explicit Names(const RecordFile& file)
      : dictionary_(file), room_((std::uint64_t{16} << 20) + 8 * file.size()) {}
  // Frames copy their names. Once a hostile record has asked for more text than any writer's has,
  // its code objects have numbers only.
  Frame frame(Place place);
  // A code object at its first line.
  Frame frame(std::uint32_t id);
  // Returns empty if only calls were recorded or the line table has no entry.
  std::optional<std::uint32_t> line(const Code& code, Place place);
  const Dictionary& dictionary() const noexcept { return dictionary_; }
  Dictionary take() && { return std::move(dictionary_); }

 private:
  Dictionary dictionary_;
  std::uint64_t room_;                                   // bytes of names that may still be copied
  std::unordered_map<std::uint32_t, LineTable> tables_;  // by code id
};

// Keeps the later of two times.
inline void note_latest(Time& latest, Time time) {
  if (time && (!latest || *latest < *time)) latest = time;
}
// Throws Error if there is no record. Leaves broken parts out and names them in `trouble`.
Snapshot read_snapshot(const RecordFile& file);
inline Snapshot read_snapshot(const std::string& path) { return read_snapshot(RecordFile(path)); }

// Returns the last `last` events and marks of all threads. Throws Error if there is no record.
History read_history(const RecordFile& file, std::size_t last);
inline History read_history(const std::string& path, std::size_t last) {
  return read_history(RecordFile(path), last);
}

// Largest size of a slim record; a training rank's has 10 to 20 KiB.
constexpr std::size_t kLargestSlim = std::size_t{256} << 10;

// Returns a copy that is small enough to send, with all that a judge needs of a rank: a record of
// the same version, in which read_snapshot() finds the same process, step, end, stacks, groups,
// open and last collectives, open sections and the code that is recorded less closely. The other
// parts keep their last entries:
// - events: 7 of the main thread and of the one that armed (127 if the stack is empty: they show
//   where and how it ended), 1 of others
// - begins and ends of collectives: 128
// - marks: 32
// Leaves out ended threads, except those two and those that issued an open collective. Keeps the
// dictionary's ids; bytecode offsets become lines, and line tables are left out. A copy of a
// running process is as consistent as a snapshot of it. Throws Error if the file was cut meanwhile.
//
// To stay below kLargestSlim, a record of more than 256 threads loses threads, one of very deep or
// many stacks the frames before the innermost, one of long names the names of some functions.
std::string slim_record(const RecordFile& file);

}  // namespace oddrank::trace
