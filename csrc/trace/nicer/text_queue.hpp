// Passes NicerTrace's events from the threads that record to the thread that prints.
//
// A thread that has filled half of its ring copies the new events of all rings to the queue, inside
// that event's callback and with the GIL. The printing thread turns the events into text. If it
// can't keep up, recording threads wait for it without the GIL and without running Python: nothing
// raises in them and no signal handler runs. If it makes no progress (nothing reads its stdout, or
// it waits for a lock of theirs), they continue, and their events are dropped and counted.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "trace/read/threads.hpp"

namespace oddrank::trace {

// The GIL guards all members.
class TextQueue {
 public:
  static constexpr std::size_t kWake = 1 << 15;  // events that wake the printing thread
  static constexpr std::size_t kFull = 1 << 19;  // recording threads wait from here on
  static constexpr std::size_t kMost = 2 * kFull;

  // Starts to collect events. Throws Error if a queue exists or the process does not record.
  static void begin();
  // Returns null if there is none.
  static TextQueue* current() noexcept { return instance; }
  // Collects a last time and stops. Collected events can still be taken.
  static void close() noexcept;
  static void end() noexcept;
  // Call it in a forked child: drops the parent's events, which the parent prints.
  static void forget_parent();

  // Native id of the printing thread, whose events are not shown; 0: there is none.
  static void set_printer(std::uint32_t tid) noexcept { printer = tid; }
  // Waits, without the GIL, for kWake events or wake(), at most `most`.
  static void wait_for_work(std::chrono::milliseconds most);
  static void wake();

  // Copies the new events of all rings to the queue.
  void collect() noexcept;
  // The rest of the batch, which holds the oldest events.
  std::span<const FedEvent> batch() const noexcept { return std::span(batch_).subspan(taken_); }
  // Makes all other events the batch if it is empty.
  void next_batch() noexcept;
  // Takes at most `most` events from the batch. Wakes waiting threads.
  std::vector<FedEvent> take(std::size_t most);
  // The record of the batch's events. Null in a forked child before its first events.
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
  bool stuck_ = false;  // the printing thread made no progress while a thread waited
  std::unique_ptr<EventFeed> feed_;
  std::vector<FedEvent> batch_;  // valid from taken_ on
  std::size_t taken_ = 0;
  std::vector<FedEvent> events_;
};

}  // namespace oddrank::trace
