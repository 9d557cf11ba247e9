// Writes a record as events of the Trace Event Format (Chrome's JSON), for Perfetto and
// chrome://tracing.
//
// Flow of the data:
// 1. The caller reads each record's facts() and chooses one origin for all ranks and one clock per
//    host.
// 2. Marks and collectives of each record, which are few, become slices in separate rows.
// 3. A copy of each thread's ring goes through Nesting, which opens and closes calls.
// 4. Each call becomes a line of text, made of pieces that are escaped once per code object.
// 5. chunk() returns when it has a MiB; Python compresses it while the next one is made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/read/file.hpp"
#include "trace/read/nesting.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {

// Longest text from a record, in bytes: it may be repeated with every event.
constexpr std::size_t kLongestText = 500;

// A rank is a process of the trace; a row is a thread or one of these ids, which no thread has.
constexpr std::uint64_t kStepRow = 10'000'000;
constexpr std::uint64_t kSectionRow = 20'000'000;
constexpr std::uint64_t kCollectiveRow = 30'000'000;

struct ExportOptions {
  std::int64_t process_id = 0;  // in the trace: pids of two hosts may be equal
  std::int64_t origin_ns = 0;   // time 0 of the trace
  // Readings of all records of this boot, so that their ranks share one clock. If they give no
  // line, the record's own readings are used.
  std::vector<ClockPicture> clocks;
  bool lines = false;  // write each line as an instant event
};

// The text of events. Each event begins with ",\n": the writer of the file drops the first comma.
class ExportText {
 public:
  ExportText(const ExportOptions& options, const Clock& clock)
      : process_id_(options.process_id), origin_ns_(options.origin_ns), clock_(clock) {}

  // Returns nanoseconds since the origin, at most end(). An unknown time becomes the last one.
  std::int64_t time(std::uint64_t tsc) noexcept;
  void set_end(std::int64_t realtime_ns) noexcept { end_ = realtime_ns - origin_ns_; }
  std::int64_t end() const noexcept { return end_; }

  // {"ph":"B","pid":1,"tid":2,"ts":3.000   The caller appends the rest and "}".
  void begin_event(char phase, std::uint64_t row, std::int64_t ns);
  void instant(std::uint64_t row, std::int64_t ns, std::string_view name);
  // Writes a row's or process's name, or the number by which rows are sorted.
  void describe(std::string_view what, std::uint64_t row, std::string_view name);
  void describe(std::string_view what, std::uint64_t row, std::int64_t number);
  // ,"name":"..."
  void name(std::string_view bytes);

  std::string text;
  std::uint64_t events = 0;
  std::uint64_t left_out = 0;  // number of calls and slices left out (too deep, too many rows)

 private:
  void metadata(std::string_view what, std::uint64_t row, std::string_view key);

  std::int64_t process_id_;
  std::int64_t origin_ns_;
  Clock clock_;
  std::int64_t end_ = INT64_MAX;
  std::int64_t last_ = 0;
  // The text between phase and time, the same for all events of a row.
  std::string prefix_;
  std::uint64_t prefix_row_ = ~std::uint64_t{0};
};

// A slice of a step, section or collective.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string name;  // the writer's bytes
  std::string args;  // members of a JSON object
};

// Whether a slice may lie inside another one in the same row.
enum class Within : std::uint8_t { kSameRow, kRowOfItsOwn };

// Writes slices that may overlap into as many rows as needed, up to 32; the first is called
// `title`. Returns the first free row.
std::uint64_t write_slices(ExportText& out, std::uint64_t row, std::string_view title,
                           std::int64_t order, Within within, std::vector<Slice> slices);

// Appends the inside of a JSON string. Each invalid byte becomes U+FFFD. A text longer than `most`
// bytes is cut and ends in "...".
void append_escaped(std::string& to, std::string_view bytes, std::size_t most);

// Appends nanoseconds as microseconds, the unit of the Trace Event Format: 1234567 is 1234.567.
void append_microseconds(std::string& to, std::int64_t nanoseconds);

// Writes the calls of one record, thread by thread. Escapes the text of each code object once.
class ExportCalls final : public CallVisitor {
 public:
  ExportCalls(ExportText& out, Names& names, bool lines)
      : out_(out), names_(names), lines_(lines) {}

  // Sets the thread of the next calls.
  void set_thread(const Thread& thread) noexcept;

  void open(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) override;
  void close(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) override;
  void line(std::uint64_t tsc, Place place) override;
  void gap(std::uint64_t tsc) override;
  void level(std::uint64_t tsc, Place place) override;

 private:
  // The text of one code object after the time: for its calls and for its lines.
  struct Text {
    std::string call;
    std::string line;
  };
  const Text& text_of(std::uint32_t id);

  ExportText& out_;
  Names& names_;
  bool lines_;
  std::uint32_t tid_ = 0;
  bool ended_ = false;
  std::unordered_map<std::uint32_t, Text> texts_;
};

// What the caller needs from all records before it exports one.
struct ExportFacts {
  Process process;
  Liveness life = Liveness::kUnknown;
  Counters counters;
  Time begin;  // the time of arm()
  std::vector<ClockPicture> clocks;
};

// Streams one record. Takes memory for a chunk, one ring and the names.
class Export {
 public:
  static constexpr std::size_t kChunk = std::size_t{1} << 20;

  // Throws Error if it is no record.
  explicit Export(const std::string& path);
  explicit Export(RecordFile file);

  ExportFacts facts() const;
  // Reads marks, collectives and the list of threads. Returns false if the record's ticks can't be
  // converted to times. Open slices end now if the process is alive, else with its last event.
  bool start(const ExportOptions& options);
  // Returns the next MiB or so; empty at the end.
  std::string chunk();

  // Number of events so far, without descriptions of rows.
  std::uint64_t events() const noexcept { return out_ ? out_->events : 0; }
  // Returns what could not be read or is left out; empty if nothing is missing.
  std::string trouble() const;

 private:
  void find_end(const std::vector<Mark>& marks, const std::vector<Collective>& collectives);
  void describe();
  bool next_thread();

  RecordFile file_;
  Clock clock_;
  ExportOptions options_;
  std::optional<Names> names_;
  std::optional<ExportText> out_;
  std::vector<Thread> threads_;
  std::size_t thread_ = 0;
  std::unique_ptr<ExportCalls> calls_;
  std::unique_ptr<Nesting> nesting_;
  std::string trouble_;
};

}  // namespace oddrank::trace
