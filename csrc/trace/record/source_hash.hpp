// A hash of a source file, so that a reader knows whether it still is what ran.
#pragma once

#include <cstdint>
#include <string>

namespace oddrank::trace {

// FNV-1a of the file's bytes; 0 where it can't be read, is no regular file or is over 4 MiB. Reads
// the file: once a file, where somebody may wait for the disk.
std::uint64_t source_hash(const std::string& path) noexcept;

}  // namespace oddrank::trace
