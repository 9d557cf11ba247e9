// The last words of a node that has lost the root.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/guard.hpp"
#include "control/messages.hpp"

namespace oddrank::control {

// "0-5,7"
std::string fold(std::vector<std::int32_t> ranks);

// Writes one line to stderr: why, in which stage, and how the ranks of this node are, read from
// /proc by the pids of the roster.
void print_partial_view(const GuardOptions& options, const std::optional<Roster>& roster,
                        const std::string& why, const std::string& stage, Life own);

}  // namespace oddrank::control
