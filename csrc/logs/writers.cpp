// Writers of lines: hashes, copies, and the map from prefixes to numbers.
#include "logs/writers.hpp"

namespace oddrank::logs {

std::size_t HashPrefix::operator()(const Prefix& p) const {
  std::size_t hash = p.host.empty() && p.pod.empty() ? 0
                                                     : std::hash<std::string_view>()(p.host) * 31 +
                                                           std::hash<std::string_view>()(p.pod);
  for (const std::int64_t part : {p.rank, p.local_rank, p.task, p.host_number, p.pid}) {
    hash = (hash ^ static_cast<std::size_t>(part)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

Writer::Writer(const Prefix& prefix)
    : rank(prefix.rank),
      local_rank(prefix.local_rank),
      task(prefix.task),
      host_number(prefix.host_number),
      pid(prefix.pid),
      host(prefix.host),
      pod(prefix.pod) {}

Prefix Writer::prefix() const {
  Prefix who;
  who.rank = rank;
  who.local_rank = local_rank;
  who.task = task;
  who.host_number = host_number;
  who.pid = pid;
  who.host = host;
  who.pod = pod;
  return who;
}

void WriterNumbers::find(const Prefix& who) {
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
}

}  // namespace oddrank::logs
