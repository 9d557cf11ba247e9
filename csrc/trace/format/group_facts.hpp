// A process group as the collective recorder sees it and the dictionary keeps it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/format/format.hpp"

namespace oddrank::trace {

// The views must live only during the call.
struct GroupFacts {
  std::string_view name = {};
  std::string_view backend = {};
  std::string_view text = {};                 // its description
  std::span<const std::uint64_t> ranks = {};  // global, in group order; empty: see is_whole_job
  std::uint32_t size = 0;                     // 0: unknown
  std::uint32_t own = kNoRank;
  bool is_whole_job = false;  // it has the global ranks 0 to size - 1
};

}  // namespace oddrank::trace
