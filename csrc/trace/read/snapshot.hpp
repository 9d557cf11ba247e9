// What a process does now, or did last: its record as one plain value, ids and offsets resolved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/read/clock.hpp"
#include "trace/read/collectives.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/file.hpp"
#include "trace/read/life.hpp"
#include "trace/read/linetable.hpp"
#include "trace/read/records.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {

// Wall-clock time in nanoseconds; none where the record can't tell.
using Time = std::optional<std::int64_t>;

// One place in the code. Texts are the writer's bytes.
struct Frame {
  std::string function;
  std::string file;
  std::optional<std::uint32_t> line;  // none: recorded by calls only, or not in the line table
};

struct ThreadNow {
  Thread thread;
  std::vector<Frame> stack;  // outermost first
  Time last;                 // when its last event was recorded
};

struct CollectiveNow {
  Collective collective;
  std::string group;
  std::string operation;
  Time begin;
  Time end;
};

struct Section {
  Mark mark;
  Time begin;
};

struct Snapshot {
  Process process;
  Counters counters;
  Life life = Life::kUnknown;
  std::vector<ThreadNow> threads;
  std::vector<CollectiveNow> open;
  std::optional<CollectiveNow> last;  // the last one that is not open
  std::vector<Section> sections;      // begun and not ended, outermost first
  Time step;                          // when the last step() was called
  Time last_event;                    // of any thread, mark or collective
  std::string trouble;                // what of the file could not be read; empty: nothing
};

// Ids to names and offsets to lines, for one record. Keeps the line tables that it has decoded.
class Names {
 public:
  explicit Names(const RecordFile& file) : python_(file.process().python), dictionary_(file) {}
  Frame frame(Place place);
  // None: recorded by calls only, or not in the line table.
  std::optional<std::uint32_t> line(const Code& code, Place place);
  const Dictionary& dictionary() const noexcept { return dictionary_; }

 private:
  std::uint32_t python_;
  Dictionary dictionary_;
  std::unordered_map<std::uint32_t, LineTable> tables_;  // by code id
};

// A record's own pictures of the clocks, and one of now where it was written on this boot.
std::vector<ClockPicture> clock_pictures(const RecordFile& file);
inline Clock clock_of(const RecordFile& file) { return Clock(clock_pictures(file)); }

// The later one of two times stays.
inline void note_latest(Time& latest, Time time) {
  if (time && (!latest || *latest < *time)) latest = time;
}
// What of a record could not be read; empty: nothing.
std::string trouble_of(const Dictionary& dictionary, const Threads& threads);

// Throws Error where there is no record to read; what is broken further in is left out and told.
Snapshot read_snapshot(const std::string& path);

}  // namespace oddrank::trace
