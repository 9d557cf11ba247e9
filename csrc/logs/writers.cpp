// Writers of lines: hashes, and the map from prefixes to numbers.
#include "logs/writers.hpp"

namespace oddrank::logs {

std::size_t HashWriter::operator()(const Prefix& p) const {
  std::size_t hash = p.host.empty() && p.pod.empty() ? 0
                                                     : std::hash<std::string_view>()(p.host) * 31 +
                                                           std::hash<std::string_view>()(p.pod);
  // Products that do not wait for each other: this runs where the writer changes, at each line.
  hash += static_cast<std::size_t>(p.rank) * 0x9E3779B97F4A7C15ULL +
          static_cast<std::size_t>(p.local_rank) * 0xC2B2AE3D27D4EB4FULL +
          static_cast<std::size_t>(p.task) * 0x165667B19E3779F9ULL +
          static_cast<std::size_t>(p.host_number) * 0xD6E8FEB86659FD93ULL +
          static_cast<std::size_t>(p.pid) * 0xA0761D6478BD642FULL;
  hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

std::size_t WriterNumbers::find(const Prefix& who) {
  auto found = known_.find(who);
  if (found == known_.end() && known_.size() < kMost) {
    Writer writer(who);
    const std::size_t number = ask_(writer);
    found = known_.emplace(std::move(writer), number).first;
  }
  if (found == known_.end()) found = known_.find(Prefix{});
  if (found == known_.end()) found = known_.emplace(Writer(), ask_(Writer())).first;
  last_ = found->first.prefix();
  number_ = found->second;
  // A log of one writer needs no slots.
  if (known_.size() > 1 && last_.same_writer(who)) {
    recent_.resize(kSlots);
    Slot* slot = &recent_[place(who)];
    slot[1] = slot[0];  // the older one of two goes
    slot[0] = {&found->first, number_};
  }
  return number_;
}

}  // namespace oddrank::logs
