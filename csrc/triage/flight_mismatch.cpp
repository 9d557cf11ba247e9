// The comparison of what the ranks of a group issued under one number.
#include "triage/flight_mismatch.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>
#include <utility>

namespace oddrank {
namespace {

std::uint32_t signature_at(const FlightTrack& track, std::int64_t seq,
                           std::size_t* index = nullptr) {
  const std::int64_t offset = seq - track.base;
  const auto found = std::ranges::lower_bound(
      track.rows, offset, {}, [](const FlightRow& row) { return std::int64_t{row.seq}; });
  if (found == track.rows.end() || found->seq != offset) return kNoId;
  if (index != nullptr) *index = static_cast<std::size_t>(found - track.rows.begin());
  return found->signature;
}

// Returns whether two operations can't belong to one call, and in what.
bool differ(const FlightSignature& one, const FlightSignature& two, Differs& in) {
  if (one.op != two.op) {
    in = Differs::op;
  } else if (!one.dtype.empty() && !two.dtype.empty() && one.dtype != two.dtype) {
    in = Differs::dtype;
  } else if (one.elements >= 0 && two.elements >= 0 && one.elements != two.elements) {
    in = Differs::sizes;
  } else {
    return false;
  }
  return true;
}

// Returns the numbers at which the members hold more than one signature, in order. Most groups
// have none, so this looks at numbers alone.
std::vector<std::int64_t> suspicious(const FlightMembers& members) {
  std::vector<std::int64_t> found;
  std::int64_t first = INT64_MAX;
  std::int64_t last = -1;
  std::size_t rows = 0;
  for (const FlightMember& member : members) {
    const FlightTrack& track = *member.track;
    if (track.rows.empty()) continue;
    first = std::min(first, track.base);
    last = std::max(last, track.base + track.rows.back().seq);
    rows += track.rows.size();
  }
  if (last < 0) return found;
  const auto span = static_cast<std::uint64_t>(last - first);
  // Numbers with gaps are kept in a map, all others in a row.
  const bool dense = span < 4 * rows + 4096;
  std::vector<std::uint32_t> row(dense ? span + 1 : 0, kNoId);
  std::unordered_map<std::int64_t, std::uint32_t> sparse;
  for (const FlightMember& member : members) {
    const FlightTrack& track = *member.track;
    for (const FlightRow& each : track.rows) {
      if (each.signature == kNoId) continue;
      const std::int64_t seq = track.base + each.seq;
      std::uint32_t& seen = dense ? row[static_cast<std::size_t>(seq - first)]
                                  : sparse.try_emplace(seq, kNoId).first->second;
      if (seen == kNoId) {
        seen = each.signature;
      } else if (seen != each.signature) {
        found.push_back(seq);
      }
    }
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Returns whether two ranks issued the same operations from `seq` on in another order.
bool reordered(const FlightTrack& one, const FlightTrack& two, std::int64_t seq) {
  constexpr std::size_t kWindow = 16;
  std::multiset<std::uint32_t> ahead, behind;
  for (std::size_t i = 0; i < kWindow; ++i) {
    const std::uint32_t left = signature_at(one, seq + static_cast<std::int64_t>(i));
    const std::uint32_t right = signature_at(two, seq + static_cast<std::int64_t>(i));
    if (left == kNoId || right == kNoId) return false;
    ahead.insert(left);
    behind.insert(right);
    if (i > 0 && ahead == behind) return true;
  }
  return false;
}

}  // namespace

void FlightMismatches::of_group(std::uint32_t group, const FlightMembers& members) {
  for (const std::int64_t seq : suspicious(members)) {
    if (report(group, members, seq)) return;
  }
}

bool FlightMismatches::report(std::uint32_t group, const FlightMembers& members, std::int64_t seq) {
  std::vector<Held> held;
  for (const FlightMember& member : members) {
    std::size_t index = 0;
    const std::uint32_t signature = signature_at(*member.track, seq, &index);
    if (signature == kNoId) continue;
    // The newest operation may be the first of a coalesced group that is being filled.
    const bool newest = index + 1 == member.track->rows.size();
    auto same = std::ranges::find_if(
        held, [&](const Held& each) { return compatible(each, signature, newest); });
    if (same == held.end()) same = held.insert(held.end(), {signature, {}});
    same->members.push_back(member);
  }
  if (held.size() < 2) return false;
  std::ranges::stable_sort(held, [](const Held& one, const Held& two) {
    return one.members.size() > two.members.size();
  });
  FlightMismatch made;
  made.group = group;
  made.seq = seq;
  if (!differ(tables_.signatures[held[0].signature], tables_.signatures[held[1].signature],
              made.differs)) {
    return false;
  }
  if (reordered(*held[0].members.front().track, *held[1].members.front().track, seq)) {
    made.differs = Differs::order;
  }
  const std::uint32_t expected = expected_at(held, seq);
  for (const Held& each : held) {
    FlightVariant variant;
    const FlightSignature& signature = tables_.signatures[each.signature];
    variant.call.seq = seq;
    variant.call.op = signature.op;
    variant.call.dtype = signature.dtype;
    variant.call.sizes = signature.sizes;
    std::size_t index = 0;
    signature_at(*each.members.front().track, seq, &index);
    variant.call.stack = each.members.front().track->rows[index].stack;
    variant.call.state =
        each.members.front().track->completed >= seq ? CallState::completed : CallState::enqueued;
    if (expected != kNoId) variant.usual = each.signature == expected ? 1 : 0;
    variant.file = each.members.front().file;
    for (const FlightMember& member : each.members) variant.ranks.push_back(ranks_[member.file]);
    std::ranges::sort(variant.ranks);
    made.variants.push_back(std::move(variant));
  }
  found_.push_back(std::move(made));
  return true;
}

bool FlightMismatches::compatible(const Held& held, std::uint32_t signature, bool newest) const {
  if (held.signature == signature) return true;
  const FlightSignature& one = tables_.signatures[held.signature];
  const FlightSignature& two = tables_.signatures[signature];
  if ((one.coalesced || two.coalesced) && newest) return true;
  Differs in{};
  return !differ(one, two, in);
}

// Training repeats itself. Returns the one operation that always followed the calls before
// `seq`, if it is among those that are held; else kNoId.
std::uint32_t FlightMismatches::expected_at(const std::vector<Held>& held, std::int64_t seq) {
  const FlightTrack* longest = nullptr;
  std::size_t before = 0;
  for (const Held& each : held) {
    for (const FlightMember& member : each.members) {
      std::size_t index = 0;
      signature_at(*member.track, seq, &index);
      if (longest == nullptr || index > before) {
        longest = member.track;
        before = index;
      }
    }
  }
  const auto& rows = longest->rows;
  const auto same = [&](std::size_t one, std::size_t two) {
    return rows[one].signature == rows[two].signature;
  };
  constexpr std::array<std::size_t, 3> kLengths{3, 8, 24};
  for (const std::size_t length : kLengths) {
    std::size_t matches = 0;
    std::uint32_t next = kNoId;
    bool always = true;
    for (std::size_t at = length; at < before && always; ++at) {
      std::size_t matched = 0;
      while (matched < length && same(at - 1 - matched, before - 1 - matched)) ++matched;
      if (matched < length) continue;
      always = matches++ == 0 || rows[at].signature == next;
      next = rows[at].signature;
    }
    if (!always || matches < 2) continue;
    const bool held_by_any =
        std::ranges::any_of(held, [&](const Held& each) { return each.signature == next; });
    return held_by_any ? next : kNoId;
  }
  return kNoId;
}

}  // namespace oddrank
