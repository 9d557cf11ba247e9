// A training's logs: merges the rows of all files, judges them, and keeps a bounded number of them.
#pragma once

#include "metrics/reader.hpp"
#include "metrics/row.hpp"
#include "metrics/sequence.hpp"
#include "metrics/verdicts.hpp"

namespace oddrank::metrics {

class Job {
 public:
  struct Limits {
    std::size_t rows = 65'536;  // kept for pictures, 48 bytes each; if more, every second one goes
    bool csv = false;           // makes lines for take_csv()
    std::string pattern{};      // lines to read, as in Pattern; "": all formats
  };
  // One file's reference: for times without a year, as in logs::find_time().
  Job(const std::vector<std::int64_t>& references_ns, const Limits& limits);

  // Adds the next bytes of a file.
  void feed(std::size_t file, std::string_view bytes);
  // The file has ended. Text fed later begins a new line.
  void end(std::size_t file);
  // The file has no more bytes for now: its last line may go on.
  void pause(std::size_t file);
  // Another file has taken its name, or it was cut off: lines count from 1 again.
  void replace(std::size_t file);
  // Returns the file that must be fed or ended before rows of the others can be judged; -1 if
  // there is none. Rows are taken in the order of time. Files whose lines name no time come one
  // after another.
  std::ptrdiff_t wanted() const;
  // Judges all rows that are there, without waiting for any file: for logs that still grow.
  void flush();
  void silence(double seconds) { verdicts_.silence(seconds); }

  const Verdicts& verdicts() const { return verdicts_; }
  std::uint64_t lines() const;
  // Returns the CSV's lines since the last call; the first one names the columns.
  std::string take_csv();

  // A kept row, for pictures: iteration, time, loss, grad norm, speed, and whether it restarted.
  using Point = std::array<double, 6>;
  const std::vector<Point>& points() const { return points_; }

 private:
  struct File {
    Reader reader;
    std::deque<Row> rows;
    std::size_t timed = 0;  // rows that have got a time; later ones are new
    bool ended = false;
    double time = kUnknown;  // time of its last row that named one
  };

  static bool is_before(const Row& a, const Row& b);
  void take(File& file);
  void drain(bool wait);
  void emit();
  void keep(const Step& step);
  void write_csv(const Step& step);

  Limits limits_;
  std::vector<File> files_;
  Sequence sequence_;
  Verdicts verdicts_;
  std::vector<Step> steps_;
  std::vector<Point> points_;
  std::uint64_t stride_ = 1;  // one in so many rows is kept
  std::uint64_t seen_ = 0;
  double last_time_ = kUnknown;
  std::string csv_;
  bool has_head_ = false;
};

}  // namespace oddrank::metrics
