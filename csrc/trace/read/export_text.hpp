// Events of the Trace Event Format, as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/read/clock.hpp"

namespace oddrank::trace {

// Of somebody else's texts no more than this is repeated with every event.
constexpr std::size_t kLongestText = 500;

// A rank is a process of the picture, a row is a thread or one of these: no thread has such an id.
constexpr std::uint64_t kStepRow = 10'000'000;
constexpr std::uint64_t kSectionRow = 20'000'000;
constexpr std::uint64_t kCollectiveRow = 30'000'000;

struct ExportOptions {
  std::int64_t process_id = 0;  // in the picture: the pids of two hosts may be the same
  std::int64_t origin_ns = 0;   // its time 0
  // Of all records of its boot, so that their ranks fit together; not enough for a clock: its own.
  std::vector<ClockPicture> clocks;
  bool lines = false;  // each line as an instant event
};

// Each event begins with ",\n", so that whoever writes the file drops the first two bytes.
class ExportText {
 public:
  ExportText(const ExportOptions& options, const Clock& clock)
      : process_id_(options.process_id), origin_ns_(options.origin_ns), clock_(clock) {}

  // Nanoseconds since the origin, at most the end; what can't be told gets the time before it.
  std::int64_t time(std::uint64_t tsc) noexcept;
  void set_end(std::int64_t realtime_ns) noexcept { end_ = realtime_ns - origin_ns_; }
  std::int64_t end() const noexcept { return end_; }

  // {"ph":"B","pid":1,"tid":2,"ts":3.000   The caller appends the rest and "}".
  void begin_event(char phase, std::uint64_t row, std::int64_t ns);
  void instant(std::uint64_t row, std::int64_t ns, std::string_view name);
  // A name, or a number that rows are sorted by.
  void describe(std::string_view what, std::uint64_t row, std::string_view name);
  void describe(std::string_view what, std::uint64_t row, std::int64_t number);
  // ,"name":"..."
  void name(std::string_view bytes);

  std::string text;
  std::uint64_t events = 0;
  std::uint64_t left_out = 0;  // calls and slices for which the picture has no room

 private:
  void metadata(std::string_view what, std::uint64_t row);

  std::int64_t process_id_;
  std::int64_t origin_ns_;
  Clock clock_;
  std::int64_t end_ = INT64_MAX;
  std::int64_t last_ = 0;
  // What all events of a row have between phase and time: built where the row changes.
  std::string prefix_;
  std::uint64_t prefix_row_ = ~std::uint64_t{0};
};

// A slice of a row of its own.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::string name;  // bytes of the writer's
  std::string args;  // members of a JSON object
};

// Whether a slice within another one is shown below it, in the same row.
enum class Within : std::uint8_t { kSameRow, kRowOfItsOwn };

// Slices that may overlap: as many rows as that takes, up to 32, the first one called `title`.
// Returns the first row that is free.
std::uint64_t write_slices(ExportText& out, std::uint64_t row, std::string_view title,
                           std::int64_t order, Within within, std::vector<Slice> slices);

}  // namespace oddrank::trace
