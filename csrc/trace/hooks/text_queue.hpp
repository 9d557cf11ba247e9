// Between the threads that record and the one that prints: NicerTrace's events on their way.
//
// A thread that has written half of its ring copies all rings' new events to the queue, in the
// callback of that event and with the GIL, so that all of Python stands still meanwhile. The
// printing thread turns them into text. If it can't keep up, the threads that record wait for it,
// without the GIL and without running any Python: nothing raises in them, and no signal's handler
// runs at a place where it would not have run. If it does not move at all (its stdout is a pipe
// that nobody reads, or it waits for a lock of theirs), they go on and what they record is dropped
// and counted.
#pragma once

#include <Python.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trace/read/feed.hpp"

namespace oddrank::trace {

// The GIL guards all but `waiting_`.
class TextQueue {
 public:
  static constexpr std::size_t kWake = 1 << 15;  // events that wake the printing thread
  static constexpr std::size_t kFull = 1 << 19;  // from here on recording threads wait
  static constexpr std::size_t kMost = 2 * kFull;

  // Listens from now on. One at a time; the process records already. `printer` is the native id of
  // the printing thread, of which nothing is shown. Throws Error.
  static void begin(int wake, std::uint32_t printer);
  // nullptr: there is none.
  static TextQueue* current() noexcept { return instance; }
  // Collects a last time and listens no more; what was collected can still be taken.
  static void close() noexcept;
  static void end() noexcept;
  // In a forked child: what the parent has not printed is the parent's.
  static void forget_parent(int wake, std::uint32_t printer);

  // Copies what is new in the rings.
  void collect() noexcept;
  // The oldest events, at most `most`; empty where there are none. Lets those go on that wait.
  std::vector<FedEvent> take(std::size_t most);
  // Of the events last taken. Null before the first ones in a forked child.
  const RecordFile* file() const noexcept { return feed_ ? &feed_->file() : nullptr; }

 private:
  struct Waiting {
    std::mutex mutex;
    std::condition_variable moved;
    std::atomic<std::size_t> queued = 0;
    std::atomic<bool> ended = false;
  };
  TextQueue(int wake, std::uint32_t printer) : wake_(wake), printer_(printer) {}
  static void listen(bool may_wait) noexcept;
  bool open_feed();
  void wait_for_room() noexcept;
  void drop_from(std::size_t begin);

  static inline TextQueue* instance = nullptr;
  int wake_;  // a pipe's end, the caller's
  std::uint32_t printer_;
  int pid_ = 0;
  bool closed_ = false;
  bool stuck_ = false;  // the printing thread has not moved for as long as anybody waits
  std::unique_ptr<EventFeed> feed_;
  std::vector<FedEvent> events_;
  std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
};

}  // namespace oddrank::trace
