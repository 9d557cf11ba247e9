// Hash of a source file: tells a reader whether the file has changed since it ran.
#pragma once

#include <cstdint>
#include <string>

namespace oddrank::trace {

// Returns FNV-1a of the file's bytes; 0 if it can't be read, is no regular file or is over 4 MiB.
// Blocks on the disk.
std::uint64_t source_hash(const std::string& path) noexcept;

}  // namespace oddrank::trace
