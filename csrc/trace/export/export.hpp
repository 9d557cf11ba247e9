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
#include <unordered_map>
#include <vector>

#include "trace/export/export_text.hpp"
#include "trace/read/nesting.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {

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
