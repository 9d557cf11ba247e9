#include "triage/wait_graph.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

namespace oddrank::triage {
namespace {

using Calls = std::vector<std::size_t>;  // their numbers
constexpr double kBatch = 0.0005;        // messages issued within so many seconds run at once
constexpr std::int64_t kNowhere = -2;

// Returns the oldest open collective. Null: there is none.
const OpenCall* oldest(const RankProgress& one) {
  const auto found =
      std::ranges::find_if(one.open, [](const OpenCall& call) { return !call.peer; });
  return found == one.open.end() ? nullptr : &*found;
}

// Returns how far a rank has come: twice the number of the call in which it is or which it has not
// entered, and one more if it is inside; kNowhere without any call. Empty: the source is mute.
Number front_of(const RankProgress& one) {
  if (const OpenCall* call = oldest(one); call != nullptr && call->seq) return 2 * *call->seq + 1;
  // Counters can't tell a call that was not entered from one that is being entered.
  if (const Number last = std::max(one.enqueued, one.completed)) return 2 * (*last + 1);
  return one.whole && one.open.empty() ? Number(kNowhere) : std::nullopt;
}

class Builder {
 public:
  Builder(const std::vector<RankProgress>& progress, std::vector<std::vector<std::int64_t>> groups)
      : progress_(progress), members_(std::move(groups)), of_group_(members_.size()) {
    for (std::size_t i = 0; i < progress.size(); ++i) {
      of_group_.at(progress[i].group).push_back(i);
      fronts_.push_back(front_of(progress[i]));
      for (const OpenCall& call : progress[i].open) calls_.push_back(&call);
    }
  }

  WaitGraph made() {
    for (std::size_t at = 0; at < calls_.size();) {
      Calls own;
      bool is_ordered = true;
      const std::int64_t rank = calls_[at]->rank;
      for (; at < calls_.size() && calls_[at]->rank == rank; ++at) {
        is_ordered = is_ordered && !calls_[at]->on_host && calls_[at]->since;
        own.push_back(at);
      }
      if (is_ordered) graph_.ordered.insert(rank);
      stand(is_ordered ? oldest_of(std::move(own)) : firsts_of(own));
    }
    find_unmet();
    for (WaitPlace& place : graph_.places) {
      if (const OpenCall& call = *calls_[place.call]; call.peer) {
        await_peer(place, *call.peer);
      } else if (call.seq) {
        await_members(place, call);
      }
    }
    return std::move(graph_);
  }

 private:
  // Returns the call in which a GPU is, or the messages of a batch.
  Calls oldest_of(Calls own) const {
    const auto since = [this](std::size_t i) { return *calls_[i]->since; };
    std::ranges::stable_sort(own, {}, since);
    const double end = since(own[0]) + kBatch;
    const auto runs = [&](std::size_t i) { return calls_[i]->peer && since(i) <= end; };
    const auto rest = std::find_if_not(own.begin() + 1, own.end(), runs);
    own.erase(calls_[own[0]]->peer ? rest : own.begin() + 1, own.end());
    return own;
  }

  // Returns the oldest call of each group, and the oldest message a peer and way.
  Calls firsts_of(const Calls& own) const {
    std::set<std::tuple<std::size_t, Number, bool>> seen;
    Calls firsts;
    for (const std::size_t i : own) {
      const OpenCall& one = *calls_[i];
      if (seen.emplace(one.group, one.peer, one.is_send).second) firsts.push_back(i);
    }
    return firsts;
  }

  void stand(const Calls& own) {
    for (const std::size_t i : own) {
      const OpenCall& one = *calls_[i];
      const auto [found, is_new] = numbers_.try_emplace(
          {one.group, one.seq, one.peer ? Number(one.rank) : one.peer, one.peer, one.is_send},
          graph_.places.size());
      if (is_new) graph_.places.push_back({i, {}, {}, {}, {}});
      graph_.places[found->second].calls[one.rank] = i;
      graph_.of[one.rank].push_back(found->second);
    }
  }

  void await_members(WaitPlace& place, const OpenCall& one) const {
    const std::int64_t here = 2 * *one.seq + 1;
    const auto gpu = [this](std::size_t i) { return !progress_[i].on_host; };
    const auto is_past = [&](std::size_t i) { return fronts_[i] > here; };
    const auto& all = of_group_[one.group];
    if (one.needs_all && std::ranges::all_of(all, gpu) && std::ranges::any_of(all, is_past)) {
      return;  // somebody got out: all members had come
    }
    std::vector<std::int64_t> heard;
    for (const std::size_t i : all) {
      if (!fronts_[i]) continue;
      const std::int64_t rank = progress_[i].rank;
      heard.push_back(rank);
      if (fronts_[i] < here) place.missing.push_back(rank);
      const bool is_there = !graph_.ordered.contains(rank) || place.calls.contains(rank);
      if (fronts_[i] == here && !is_there && !oldest(progress_[i])->started) {
        place.elsewhere.push_back(rank);
      }
    }
    std::vector<std::int64_t> absent;
    std::ranges::set_difference(members_[one.group], heard, std::back_inserter(absent));
    for (const std::int64_t rank : absent) {
      // A dump that was cut off does not tell of this call, but of the one before.
      (graph_.ordered.contains(rank) ? place.elsewhere : place.unheard).push_back(rank);
    }
  }

  void await_peer(WaitPlace& place, std::int64_t peer) {
    const std::int64_t rank = place.calls.begin()->first;
    const auto is_to_rank = [&](std::size_t i) {
      return calls_[graph_.places[i].call]->peer == rank;
    };
    if (!std::ranges::binary_search(progress_, peer, {}, &RankProgress::rank)) {
      place.unheard = {peer};
    } else if (const auto found = graph_.unmet.find({rank, peer}); found != graph_.unmet.end()) {
      place.missing = {peer};
      place.call = found->second;
    } else if (graph_.ordered.contains(peer) && std::ranges::none_of(graph_.of[peer], is_to_rank)) {
      place.elsewhere = {peer};
    }
  }

  // Sends meet receives in the order in which they were issued. A message is met if the peer is in
  // its other end, or in a later message of the same way: numbers tell, if all have them.
  void find_unmet() {
    std::map<std::pair<std::int64_t, std::int64_t>, Calls> opened;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const std::int64_t rank = calls_[i]->rank;
      const std::int64_t peer = calls_[i]->peer.value_or(rank);
      if (peer != rank) opened[{rank, peer}].push_back(i);
    }
    for (const auto& [pair, own] : opened) {
      const auto back = opened.find({pair.second, pair.first});
      const auto found = first_unmet(own, back == opened.end() ? Calls() : back->second);
      if (found) graph_.unmet.emplace(pair, *found);
    }
  }

  std::optional<std::size_t> first_unmet(const Calls& own, const Calls& back) const {
    const auto seq = [this](std::size_t i) { return calls_[i]->seq.value_or(0); };
    const auto nth = [this](std::size_t i) { return calls_[i]->nth.value_or(0); };
    const auto all_have = [&](Number OpenCall::*field) {
      const auto has = [&](std::size_t i) { return (calls_[i]->*field).has_value(); };
      return std::ranges::all_of(own, has) && std::ranges::all_of(back, has);
    };
    const bool numbered = all_have(&OpenCall::nth);
    // The other side has completed messages that are open on one side only, before this number.
    std::int64_t start = 0;
    if (!back.empty() && !numbered && all_have(&OpenCall::seq)) {
      start = std::max(seq(std::ranges::min(back, {}, seq)), seq(std::ranges::min(own, {}, seq)));
    }
    std::array<std::int64_t, 2> last{}, met{};  // of receives, of sends
    for (const std::size_t i : back) {
      std::int64_t& of_way = last[calls_[i]->is_send ? 1 : 0];
      if (seq(i) >= start) of_way = numbered ? std::max(of_way, nth(i)) : of_way + 1;
    }
    for (const std::size_t i : own) {
      const std::size_t way = calls_[i]->is_send ? 1 : 0;
      if (seq(i) >= start && (numbered ? nth(i) : ++met[way]) > last[1 - way]) return i;
    }
    return std::nullopt;
  }

  const std::vector<RankProgress>& progress_;
  std::vector<std::vector<std::int64_t>> members_;  // of each group
  std::vector<std::vector<std::size_t>> of_group_;  // indexes of progress
  std::vector<Number> fronts_;                      // of each progress
  std::vector<const OpenCall*> calls_;
  // Group, number and, of a message, rank, peer and way -> its place.
  std::map<std::tuple<std::size_t, Number, Number, Number, bool>, std::size_t> numbers_;
  WaitGraph graph_;
};

}  // namespace

WaitGraph wait_graph(const std::vector<RankProgress>& progress,
                     std::vector<std::vector<std::int64_t>> groups) {
  return Builder(progress, std::move(groups)).made();
}

}  // namespace oddrank::triage
