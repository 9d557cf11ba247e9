// Merges logs by the times of their lines, however large they are.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "logs/merged_log.hpp"

namespace oddrank::logs {

struct MergeSource {
  std::string path;
  std::int64_t reference_ns = 0;  // for times without a year, see find_time()
  // Bytes to read, from the file's beginning; the default: all.
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
};

// Writes the lines of all sources in order of time. Lines of one source keep their order; those
// without a time stay behind the line before them. Throws SystemError if a source can't be opened
// or the output can't be written.
Merged merge_logs(const std::vector<MergeSource>& sources, const MergeOptions& options);

}  // namespace oddrank::logs
