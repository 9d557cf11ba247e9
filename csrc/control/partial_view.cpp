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

Life life_of(const Roster::Process& process) {
  const ProcStat stat = read_stat(process.pid);
  if (stat.state == 0 || stat.start_time != process.start_time) return Life::kDead;
  switch (stat.state) {
    case 'T':
    case 't':
      return Life::kStopped;
    case 'Z':
    case 'X':
      return Life::kDead;
    case 'D':
      return Life::kUninterruptible;
    default:
      return Life::kRunning;
  }
}

// Values come from other hosts' environment: keep terminals safe.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace

void print_partial_view(const GuardOptions& options, const std::optional<Roster>& roster,
                        const std::string& why, const std::string& stage, Life own) {
  std::map<Life, std::vector<std::int32_t>> ranks;
  if (roster) {
    for (const auto& process : roster->processes) {
      const bool is_own = process.rank == options.rank;
      ranks[is_own ? own : life_of(process)].push_back(process.rank);
    }
  } else {
    ranks[own].push_back(options.rank);
  }
  std::string line = "oddrank: partial view from " + options.host + ": " + why;
  if (roster) line += " (rank 0 on " + roster->root_host + ")";
  line += stage.empty() ? "" : ", in stage " + stage;
  std::string states;
  for (const auto& [life, who] : ranks) {
    states += (states.empty() ? "" : ", ") + fold(who) + " " + name_of(life);
  }
  line = printable(line + "; ranks here: " + states) + "\n";
  // One write: lines of several nodes on one terminal stay whole. Nothing to do if it fails.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace oddrank::control
