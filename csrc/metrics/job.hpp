// A training's logs: merges the rows of all files and judges them.
#pragma once

#include "metrics/reader.hpp"
#include "metrics/row.hpp"
#include "metrics/sequence.hpp"
#include "metrics/verdicts.hpp"

namespace oddrank::metrics {

class Job {
 public:
  // One file's reference: for times without a year, as in logs::find_time(). csv: makes lines for
  // take_csv(). pattern: lines to read, as in Pattern; "": those of all formats.
  explicit Job(const std::vector<std::int64_t>& references_ns, bool csv = false,
               const std::string& pattern = {});

  // Adds the next bytes of a file.
  void feed(std::size_t file, std::string_view bytes);
  // The file has ended. What is fed later begins a new line.
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

 private:
  struct File {
    Reader reader;
    std::deque<Row> rows;
    std::size_t timed = 0;  // of the rows: those behind it are new
    bool ended = false;
    double time = kUnknown;  // of its last row that named one
  };

  static bool is_before(const Row& a, const Row& b);
  void take(File& file);
  void drain(bool wait);
  void emit();
  void write_csv(const Step& step);

  bool makes_csv_;
  std::vector<File> files_;
  Sequence sequence_;
  Verdicts verdicts_;
  std::vector<Step> steps_;
  std::string csv_;
  bool has_head_ = false;
};

}  // namespace oddrank::metrics
