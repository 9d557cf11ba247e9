// Messages that a guard prints itself when its node has lost the root.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "control/guard.hpp"
#include "control/messages.hpp"

namespace oddrank::control {

// Folds ranks into ranges: "0-5,7". Sorts them; each must occur once.
std::string fold(std::vector<std::int32_t> ranks);

// Writes "oddrank: " and the text as one line to stderr, without control characters.
void say(const std::string& text);

// Writes one line to stderr: why, in which stage, and the states of this node's ranks, read from
// /proc by the roster's pids; `own` is this guard's worker.
void print_partial_view(const GuardOptions& options, const std::optional<Roster>& roster,
                        const std::string& why, const std::string& stage, Liveness own);

}  // namespace oddrank::control
