// Builds and writes the partial view.
#include "control/partial_view.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "control/process.hpp"

namespace oddrank::control {

std::string fold(std::vector<std::int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(ranks[first]);
    if (last > first) text += "-" + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

namespace {

Liveness liveness_of(const Roster::Process& process) {
  const ProcStat stat = read_stat(process.pid);
  if (stat.state == 0 || stat.start_time != process.start_time) return Liveness::kDead;
  switch (stat.state) {
    case 'T':
    case 't':
      return Liveness::kStopped;
    case 'Z':
    case 'X':
      return Liveness::kDead;
    case 'D':
      return Liveness::kUninterruptible;
    default:
      return Liveness::kRunning;
  }
}

// Replaces control characters: values may come from other hosts.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace

void print_partial_view(const GuardOptions& options, const std::optional<Roster>& roster,
                        const std::string& why, const std::string& stage, Liveness own) {
  std::map<Liveness, std::vector<std::int32_t>> ranks;
  if (roster) {
    for (const auto& process : roster->processes) {
      const bool is_own = process.rank == options.rank;
      ranks[is_own ? own : liveness_of(process)].push_back(process.rank);
    }
  } else {
    ranks[own].push_back(options.rank);
  }
  std::string line = "partial view from " + options.host + ": " + why;
  if (roster) line += " (rank 0 on " + roster->root_host + ")";
  line += stage.empty() ? "" : ", in stage " + stage;
  std::string states;
  for (const auto& [life, who] : ranks) {
    states += (states.empty() ? "" : ", ") + fold(who) + " " + name_of(life);
  }
  say(line + "; ranks here: " + states);
}

void say(const std::string& text) {
  const std::string line = printable("oddrank: " + text) + "\n";
  // One write() keeps lines of several nodes on one terminal whole. Ignore its failure.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace oddrank::control
