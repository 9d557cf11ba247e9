// What the hub tells to others: rosters to the lowest guards, its clock to all, notes to the judge.
#include <map>

#include "base/clock.hpp"
#include "control/hub.hpp"

namespace oddrank::control {

void Hub::deal_roster() {
  std::map<std::pair<int, std::string>, Roster> nodes;
  for (int rank = 0; rank < ranks_.world(); ++rank) {
    const Hello& hello = ranks_.record(rank).hello;
    if (hello.rank < 0) continue;
    Roster& roster = nodes[{hello.node, hello.host}];
    roster.root_host = options_.host;
    roster.processes.push_back({rank, hello.pid, hello.start_time});
  }
  for (const auto& [node, roster] : nodes) {
    for (const auto& process : roster.processes) {
      const int fd = fd_of_rank_[static_cast<std::size_t>(process.rank)];
      if (fd < 0) continue;
      Connection& one = *connections_[static_cast<std::size_t>(fd)];
      static_cast<void>(tell(one, Kind::kRoster, roster.pack()));
      break;
    }
  }
}

// The moment of the answer, not of this turn of the loop: others may have come before in it.
bool Hub::tell_clock(Connection& connection, const Frame& frame) {
  Unpacker in(frame.payload);
  ClockReading reading{in.u32(), 0, clock_};
  if (!in.ok()) return false;
  reading.ns = monotonic_ns();
  return tell(connection, Kind::kClock, reading.pack());
}

void Hub::turn_away(OddClaim claim) {
  if (notes_.odd.size() < 16) notes_.odd.push_back(std::move(claim));
}

}  // namespace oddrank::control
