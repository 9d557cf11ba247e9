// Writes a record as events of the Trace Event Format (Chrome's JSON), for Perfetto and
// chrome://tracing.
//
// Flow of the data:
// 1. The caller reads a snapshot of each record and chooses one origin for all ranks and one clock
//    per host.
// 2. Marks and collectives of each record, which are few, become slices in separate rows.
// 3. A copy of each thread's ring goes through Nesting, which opens and closes calls.
// 4. Each call becomes a line of text, made of pieces that are escaped once per code object.
// 5. chunk() returns when it has a MiB; Python compresses it while the next one is made.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/read/file.hpp"
#include "trace/read/nesting.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {

struct ExportOptions {
  std::int64_t process_id = 0;  // in the trace: pids of two hosts may be equal
  std::int64_t origin_ns = 0;   // time 0 of the trace
  // Readings of all records of this boot, so that their ranks share one clock. If they give no
  // line, the record's own readings are used.
  std::vector<ClockPicture> clocks;
  bool lines = false;  // write each line as an instant event
  std::map<std::string, std::string, std::less<>> operations;  // c10d's name -> the users'
};

// Appends the inside of a JSON string. Each invalid byte becomes U+FFFD. A text longer than `most`
// bytes is cut and ends in "...".
void append_escaped(std::string& to, std::string_view bytes, std::size_t most);

// Appends nanoseconds as microseconds, the unit of the Trace Event Format: 1234567 is 1234.567.
void append_microseconds(std::string& to, std::int64_t nanoseconds);

class ExportText;
class ExportCalls;

// Streams one record. Takes memory for a chunk, one ring and the names.
class Export {
 public:
  static constexpr std::size_t kChunk = std::size_t{1} << 20;

  // Throws Error if it is no record.
  explicit Export(const std::string& path);
  explicit Export(RecordFile file);
  Export(Export&&) noexcept;
  ~Export();

  // Reads marks, collectives and the list of threads. Returns false if the record's ticks can't be
  // converted to times. Open slices end now if the process is alive, else with its last event.
  bool start(const ExportOptions& options);
  // Returns the next MiB or so; empty at the end.
  std::string chunk();

  // Number of events so far, without descriptions of rows.
  std::uint64_t events() const noexcept;
  // Returns a text on the parts left out; empty if none is.
  std::string trouble() const;

 private:
  void find_end(const std::vector<Mark>& marks, const std::vector<Collective>& collectives);
  void describe();
  bool next_thread();

  RecordFile file_;
  Clock clock_;
  ExportOptions options_;
  std::optional<Names> names_;
  std::unique_ptr<ExportText> out_;
  std::vector<Thread> threads_;
  std::size_t thread_ = 0;
  std::unique_ptr<ExportCalls> calls_;
  std::unique_ptr<Nesting> nesting_;
};

}  // namespace oddrank::trace
