// Reads a record as one value, with names and lines: what its process does now or did last
// (Snapshot), its last events (History).
#pragma once

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

// A code object that is recorded less closely, since it ran too often.
struct Lowered {
  Frame frame;  // `line` is the code's first line
  Level level = Level::kOff;
  Level wanted = Level::kOff;
  Time since;
};

struct ThreadNow {
  Thread thread;
  std::vector<Frame> stack;  // outermost first
  std::vector<Time> since;   // of each frame's `now`
  Time last;                 // when its last event was recorded
  Time sampled;              // when lines of its stack were sampled; empty: none was
};

struct Snapshot {
  Process process;
  HeaderCopy header;
  Liveness life = Liveness::kUnknown;
  Clock clock;  // of all ticks here
  std::vector<ThreadNow> threads;
  std::vector<Collective> open;
  std::optional<Collective> last;     // the last one issued that is not open
  std::vector<GroupProgress> groups;  // by id in `names`
  std::vector<Lowered> lowered;       // by id in `names`
  std::optional<Dictionary> names;
  std::vector<Mark> sections;  // begun and not ended, outermost first
  Time step;                   // when the last step() was called
  Time last_event;             // of any thread, mark or collective
  Time sampled_since;          // since when no code gives events; empty: code does
  Time gil_wanted;             // since when the GIL is held, if for long; else empty
  std::string trouble;         // why parts of the file could not be read; "": all could
};

struct HistoryEvent {
  std::uint64_t tsc = 0;
  Time time;
  std::uint32_t tid = 0;
  Kind kind = Kind::kNone;  // kNone: a mark
  Frame frame;
  std::uint64_t source_hash = 0;  // of frame.file when it ran; 0: unknown
  std::string mark;               // its text; "step N" for a step; of kLevel the level's name
};

struct History {
  Process process;
  std::vector<HistoryEvent> events;  // oldest first
  std::string trouble;               // fault of the dictionary; empty if there is none
};

// Maps ids to names and offsets to lines, for one record. Keeps decoded line tables.
class Names {
 public:
  explicit Names(const RecordFile& file)
      : python_(file.process().python),
        dictionary_(file),
        room_((std::uint64_t{16} << 20) + 8 * file.size()) {}
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
  std::uint32_t python_;
  Dictionary dictionary_;
  std::uint64_t room_;                                   // bytes of names that may still be copied
  std::unordered_map<std::uint32_t, LineTable> tables_;  // by code id
};

// Returns the code objects that are recorded less closely.
std::vector<Lowered> lowered_in(Names& names, const Clock& clock);

// Keeps the later of two times.
inline void note_latest(Time& latest, Time time) {
  if (time && (!latest || *latest < *time)) latest = time;
}
// Says which parts of a record could not be read; empty if all could.
std::string trouble_of(const Dictionary& dictionary, const Threads& threads);

// Throws Error if there is no record. Leaves broken parts out and names them in `trouble`.
Snapshot read_snapshot(const RecordFile& file);
inline Snapshot read_snapshot(const std::string& path) { return read_snapshot(RecordFile(path)); }

// Returns the last `last` events and marks of all threads. Throws Error if there is no record.
History read_history(const RecordFile& file, std::size_t last);
inline History read_history(const std::string& path, std::size_t last) {
  return read_history(RecordFile(path), last);
}

}  // namespace oddrank::trace
