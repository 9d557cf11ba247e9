// The memory test of ranks without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "selftest/pattern.hpp"

namespace oddrank::selftest {

// Writes the pattern, or its complement (`flip` = all ones), into words[0..count).
void fill_pattern(std::uint64_t* words, std::size_t count, std::uint64_t seed, std::uint64_t flip);
// Adds the words that differ from it to `found`.
void find_mismatches(const std::uint64_t* words, std::size_t count, std::uint64_t seed,
                     std::uint64_t flip, Mismatches& found);

// Maps `bytes` of fresh memory, writes and reads it twice on this thread, unmaps it. Asking for
// more than there is wakes the OOM killer: the caller knows the limits. `damage`: index of a word
// to spoil in the first pass, for tests.
MemoryResult verify_host_memory(std::size_t bytes, std::uint64_t seed,
                                std::optional<std::size_t> damage = std::nullopt);

}  // namespace oddrank::selftest
