// Reads files with stacks in chunks, and tells files that have some.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "triage/stack_text.hpp"

namespace oddrank::triage {

// Feeds all files to the reader: file i is source i. Returns (i, why) of each that can't be read.
std::vector<std::pair<std::uint32_t, std::string>> read_stack_files(
    StackReader& reader, const std::vector<std::string>& paths);

// Whether a file has a stack or traceback in its first 16 MiB. False if it can't be read.
bool has_stacks(const std::string& path) noexcept;

}  // namespace oddrank::triage
