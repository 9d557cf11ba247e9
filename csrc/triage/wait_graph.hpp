// Which rank waits for which: the calls in which ranks stand, and the ranks missing in each.
//
// A rank inside a call waits for each member of the group that has come less far; one inside a send
// or a receive, for its peer. A host issues calls long before its GPU comes to them, and a GPU runs
// them in order. So a rank is not in all calls that it has open: it stands in the oldest one, if
// its source tells which that is. Ranks, groups and calls are numbers here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace oddrank::triage {

using Number = std::optional<std::int64_t>;

struct OpenCall {
  std::int64_t rank;
  std::size_t group;
  bool on_host;                 // the backend runs calls of several groups at once
  Number seq;                   // among the group's calls, or the messages of two ranks
  Number peer;                  // of a message
  Number nth;                   // of a message, among those from its sender to its receiver
  std::optional<double> since;  // seconds since 1970
  bool is_send;                 // a message that its rank sends
  bool needs_all;               // no member leaves it before all have come
  bool started;                 // the GPU or gloo works on it
};

// How far a rank has come in a group, and its open calls, the oldest first.
struct RankProgress {
  std::int64_t rank;
  std::size_t group;
  bool on_host;  // the same as in its calls
  bool whole;    // the source shows all open calls
  Number enqueued, completed;
  std::vector<OpenCall> open;
};

// A call in which ranks stand, and for whom they wait there. The place of a message has one rank.
struct WaitPlace {
  std::size_t call;  // index among all open calls; of an unmet message, that of the first unmet one
  std::map<std::int64_t, std::size_t> calls;  // the call as each rank here has issued it
  std::vector<std::int64_t> missing;          // have not issued it
  std::vector<std::int64_t> elsewhere;        // in an older call, as far as is known
  std::vector<std::int64_t> unheard;          // left no word of the group, and may lack as well
};

struct WaitGraph {
  std::vector<WaitPlace> places;
  std::map<std::int64_t, std::vector<std::size_t>> of;  // rank -> the places where it stands
  std::set<std::int64_t> ordered;                       // only the oldest call of these counts
  // Rank and peer -> the first open message between them without a counterpart.
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> unmet;
};

// Builds the graph of a job. progress: sorted by rank. groups: the members of each, sorted.
WaitGraph wait_graph(const std::vector<RankProgress>& progress,
                     std::vector<std::vector<std::int64_t>> groups);

}  // namespace oddrank::triage
