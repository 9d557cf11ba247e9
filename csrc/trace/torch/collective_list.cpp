// The bounded list: a deque whose entries are found again by ticket.
#include "trace/torch/collective_list.hpp"

#include <utility>

namespace oddrank::trace {

void CollectiveList::restart(std::size_t limit) {
  const std::lock_guard guard(mutex_);
  first_ += entries_.size();
  entries_.clear();
  dropped_ = 0;
  limit_ = limit;
}

CollectiveList::Ticket CollectiveList::issued(Collective&& collective) noexcept {
  const std::lock_guard guard(mutex_);
  try {
    entries_.push_back(std::move(collective));
  } catch (...) {
    ++dropped_;
    return kNoTicket;
  }
  if (entries_.size() > limit_) {
    entries_.pop_front();
    ++first_;
    ++dropped_;
  }
  return first_ + entries_.size() - 1;
}

void CollectiveList::numbered(Ticket ticket, std::int64_t seq) noexcept {
  const std::lock_guard guard(mutex_);
  if (ticket >= first_ && ticket - first_ < entries_.size()) entries_[ticket - first_].seq = seq;
}

std::vector<Collective> CollectiveList::copy() {
  const std::lock_guard guard(mutex_);
  return {entries_.begin(), entries_.end()};
}

std::uint64_t CollectiveList::dropped() {
  const std::lock_guard guard(mutex_);
  return dropped_;
}

}  // namespace oddrank::trace
