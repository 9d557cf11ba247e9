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
#include <unistd.h>

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "trace/read/feed.hpp"

namespace oddrank::trace {

// The GIL guards it all.
class TextQueue {
 public:
  static constexpr std::size_t kWake = 1 << 15;  // events that wake the printing thread
  static constexpr std::size_t kFull = 1 << 19;  // from here on recording threads wait
  static constexpr std::size_t kMost = 2 * kFull;

  // Listens from now on. One at a time; the process records already. Throws Error.
  static void begin();
  // nullptr: there is none.
  static TextQueue* current() noexcept { return instance; }
  // Collects a last time and listens no more; what was collected can still be taken.
  static void close() noexcept;
  static void end() noexcept;
  // In a forked child: what the parent has not printed is the parent's.
  static void forget_parent();

  // Native id of the printing thread, of which nothing is shown; 0: there is none.
  static void set_printer(std::uint32_t tid) noexcept { printer = tid; }
  // The printing thread's rest, without the GIL: until there is much to print, or wake().
  static void wait_for_work(std::chrono::milliseconds most);
  static void wake();

  // Copies what is new in the rings.
  void collect() noexcept;
  // What is left of the batch, the oldest events.
  std::span<const FedEvent> batch() const noexcept { return std::span(batch_).subspan(taken_); }
  // All other events become the next batch, once nothing is left of the last one.
  void next_batch() noexcept;
  // From the batch, at most `most`. Lets those go on that wait.
  std::vector<FedEvent> take(std::size_t most);
  // Of the events in the batch. Null before the first ones in a forked child.
  const RecordFile* file() const noexcept { return feed_ ? &feed_->file() : nullptr; }

 private:
  TextQueue() = default;
  static void listen(bool may_wait) noexcept;
  bool is_parents() const noexcept;
  bool open_feed();
  std::size_t size() const noexcept { return batch().size() + events_.size(); }
  void wait_for_room();
  void drop_from(std::size_t begin);

  static inline TextQueue* instance = nullptr;
  static inline std::uint32_t printer = 0;
  int pid_ = ::getpid();
  bool child_ = false;
  bool closed_ = false;
  bool stuck_ = false;  // the printing thread has not moved for as long as anybody waits
  std::unique_ptr<EventFeed> feed_;
  std::vector<FedEvent> batch_;  // from taken_ on
  std::size_t taken_ = 0;
  std::vector<FedEvent> events_;
};

}  // namespace oddrank::trace
