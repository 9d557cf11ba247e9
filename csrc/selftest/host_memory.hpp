// The memory test of ranks without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "selftest/pattern.hpp"

namespace oddrank::selftest {

// Writes what a pass writes into words[0..count).
void fill_pattern(std::uint64_t* words, std::size_t count, std::uint64_t seed, const Pass& pass);
// Adds the words that differ from it to `found`.
void find_mismatches(const std::uint64_t* words, std::size_t count, std::uint64_t seed,
                     const Pass& pass, Mismatches& found);

// Maps `bytes` of fresh memory, writes and reads it in the first `passes` of kPasses on this
// thread, unmaps it. Asking for more than there is wakes the OOM killer: the caller knows the
// limits.
MemoryResult verify_host_memory(std::size_t bytes, std::uint64_t seed,
                                std::size_t passes = kQuickPasses,
                                std::optional<Damage> damage = std::nullopt);

}  // namespace oddrank::selftest
