// Merges logs by the times of their lines, however large they are.
#pragma once

#include "logs/prefixes.hpp"

namespace oddrank::logs {

struct MergeSource {
  std::string path;
  std::int64_t reference_ns = 0;  // for times without a year, see find_time()
};

struct MergeOptions {
  int fd = 1;
  bool strip = false;  // leave launchers' prefixes out
  bool clean = false;  // for terminals: without escape sequences and control characters
  std::function<std::string(std::size_t source, const Writer&)> label;  // in front of its lines
  std::function<void()> pause;  // called now and then, and at signals; may throw
};

struct Merged {
  std::uint64_t lines = 0;
  std::uint64_t untimed = 0;  // lines that stayed behind the line before them
  std::uint64_t late = 0;     // lines with a time before an earlier line's of the same file
  std::vector<std::size_t> without_times;  // sources that have lines, all without a time
};

// Writes the lines of all sources in order of time. Lines of one source keep their order; those
// without a time stay behind the line before them. Throws SystemError if a source can't be opened
// or the output can't be written.
Merged merge_logs(const std::vector<MergeSource>& sources, const MergeOptions& options);

}  // namespace oddrank::logs
