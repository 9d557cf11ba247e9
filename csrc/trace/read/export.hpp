// A record as events of the Trace Event Format (Chrome's JSON), for Perfetto and chrome://tracing.
//
// How the data flow:
// 1. the caller opens each record for its facts() and takes from them one origin for all ranks, and
//    one clock for all ranks of a host;
// 2. record by record, marks and collectives become slices in rows of their own, at once: they are
//    few;
// 3. thread by thread, a copy of the ring goes through Nesting, which opens and closes calls;
// 4. each of those is a line of text, put together from pieces escaped once per code object;
// 5. chunk() returns when a MiB is full; Python compresses it while the next one is being made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/read/export_calls.hpp"
#include "trace/read/export_text.hpp"
#include "trace/read/nesting.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {

// What the records of a job have to agree about before they are exported, and what this one lacks.
struct ExportFacts {
  Process process;
  Life life = Life::kUnknown;
  Counters counters;
  Time begin;  // when it was armed
  std::vector<ClockPicture> clocks;
};

// One record, streamed. Memory: a chunk, one ring, the names.
class Export {
 public:
  static constexpr std::size_t kChunk = std::size_t{1} << 20;

  // Throws Error where it is no record.
  explicit Export(const std::string& path);
  explicit Export(RecordFile file);

  ExportFacts facts() const;
  // Takes marks, collectives and the list of threads as they are now. False where the record's
  // ticks can't be told as times: then there is nothing to export.
  //
  // What is open ends now if the process is alive, else with its last event.
  bool start(const ExportOptions& options);
  // The next MiB or so; empty at the end.
  std::string chunk();

  // Written so far, descriptions not counted.
  std::uint64_t events() const noexcept { return out_ ? out_->events : 0; }
  // What of the record could not be read, or is not in the text; empty: nothing.
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
