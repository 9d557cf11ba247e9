// Makes the text of events of the Trace Event Format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/read/file.hpp"

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

// Each event begins with ",\n": the writer of the file drops the first comma.
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
  void metadata(std::string_view what, std::uint64_t row);

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

void append_number(std::string& to, std::int64_t number);

// Appends nanoseconds as microseconds, the unit of the Trace Event Format: 1234567 is 1234.567.
void append_microseconds(std::string& to, std::int64_t nanoseconds);

}  // namespace oddrank::trace
