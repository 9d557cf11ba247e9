// Finds the times that the writers of a log named last, before some of its lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "logs/writers.hpp"

namespace oddrank::logs {

// Returns for each (line, number of its writer), in the order of lines, the time that the writer
// named last before it; 0: it named none. All times are on the clock of the log's first one.
// reference_ns: for times without a year. Throws SystemError if the file cannot be read.
std::vector<std::int64_t> last_times(
    const std::string& path, const std::vector<std::pair<std::uint64_t, std::size_t>>& wanted,
    std::int64_t reference_ns, WriterNumbers::Ask number);

}  // namespace oddrank::logs
