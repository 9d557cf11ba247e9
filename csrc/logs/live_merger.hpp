// Merges logs by the times of their lines while they grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "logs/merged_log.hpp"
#include "logs/pieces.hpp"

namespace oddrank::logs {

// Merges what comes of several logs. A line waits for earlier ones of other logs until give() is
// called with a moment after that at which it came. Of lines that wait, 64 MiB at most are held.
class LiveMerger {
 public:
  // references_ns: of each log, see find_time().
  LiveMerger(const std::vector<std::int64_t>& references_ns, MergeOptions options);
  LiveMerger(const LiveMerger&) = delete;
  LiveMerger& operator=(const LiveMerger&) = delete;

  // Takes what came of a log at a moment of a steady clock.
  void feed(std::size_t log, std::string_view chunk, std::int64_t now_ns);
  // Takes the end of a log: what comes next begins a line.
  void finish(std::size_t log, std::int64_t now_ns);
  // Writes lines in order of time until none is left that came before. Throws SystemError if the
  // output can't be written.
  void give(std::int64_t before_ns);
  Merged merged() const;

 private:
  struct Line {
    std::int64_t time;
    std::int64_t came_ns;
    std::string text;
  };
  struct Log {
    Log(std::size_t number, std::int64_t reference_ns, const MergeOptions& options)
        : lines(number, reference_ns, options) {}
    MergedLog lines;
    PieceReader reader;
    bool spoke = false;
    std::string open;  // the beginning of a line
    std::deque<Line> waiting;
  };
  using Next = std::pair<std::int64_t, std::size_t>;  // of the first line that waits: when, log

  void take(std::size_t number, const Piece& piece, std::int64_t now_ns);
  void close(std::size_t number, std::int64_t now_ns);
  void give_first();
  void flush();

  const MergeOptions options_;
  std::vector<std::unique_ptr<Log>> logs_;
  std::set<Next> by_time_, by_coming_;
  std::size_t held_ = 0;  // bytes of lines that wait
  MergeOutput output_;
  Merged counts_;
};

}  // namespace oddrank::logs
