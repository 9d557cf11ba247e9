// A bounded list of the collectives this process has issued, oldest first; free of torch and of
// Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace oddrank::trace {

struct Collective {
  std::int64_t thread = 0;  // native id of the thread that issued it
  std::string group;        // name of the process group
  std::int64_t seq = kNoSequence;
  const char* op = "";  // lives as long as the process
  std::int64_t bytes = 0;

  static constexpr std::int64_t kNoSequence = -1;  // not issued completely yet, or not numbered
};

// Keeps the newest `limit` entries and counts those that it dropped. Every function may be called
// from any thread, with and without the GIL: nothing is called out to while the lock is held.
class CollectiveList {
 public:
  using Ticket = std::uint64_t;
  static constexpr Ticket kNoTicket = UINT64_MAX;

  // Forgets everything; entries issued before can no longer be completed.
  void restart(std::size_t limit);
  // An entry that can't be stored for want of memory is counted as dropped.
  Ticket issued(Collective&& collective) noexcept;
  void numbered(Ticket ticket, std::int64_t seq) noexcept;
  std::vector<Collective> copy();
  std::uint64_t dropped();

  // Around fork: the child gets the list unlocked.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::deque<Collective> entries_;
  Ticket first_ = 0;  // ticket of entries_.front()
  std::uint64_t dropped_ = 0;
  std::size_t limit_ = 0;
};

}  // namespace oddrank::trace
