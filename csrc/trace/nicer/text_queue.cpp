// Collects events in the recorder's listener; waits for the printing thread.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>

#include "os/cpython.hpp"
#include "os/error.hpp"
#include "os/proc.hpp"
#include "trace/hooks/tracer.hpp"
#include "trace/nicer/text.hpp"

namespace oddrank::trace {
namespace {

// 20 waits of 0.1 s without progress, not one of 2 s: in one, the process may have had no core.
constexpr std::chrono::milliseconds kWait{100};
constexpr int kPatience = 20;

// Recording and printing threads wait for each other here, without the GIL.
struct Turnstile {
  std::mutex mutex;
  std::condition_variable room;  // for recording threads
  std::condition_variable work;  // for the printing thread
  std::size_t queued = 0;
  std::uint64_t moves = 0;  // number of times that the printing thread took events
  bool wanted = false;      // the printing thread should work
};

// Never destroyed: threads may wait while the process ends.
Turnstile* turnstile = new Turnstile;

void tell_queued(std::size_t queued, bool moved) {
  const std::lock_guard lock(turnstile->mutex);
  turnstile->queued = queued;
  turnstile->moves += moved ? 1 : 0;
  turnstile->room.notify_all();
}

}  // namespace

void TextQueue::begin() {
  if (instance != nullptr) throw Error("the text of a run is being written: one at a time");
  std::unique_ptr<TextQueue> made(new TextQueue);
  if (!made->open_feed()) throw Error("this process records nothing");
  instance = made.release();
  Recorder::listener = &listen;
}

void TextQueue::close() noexcept {
  Recorder::listener = nullptr;
  if (instance == nullptr) return;
  instance->collect();
  instance->closed_ = true;
}

void TextQueue::end() noexcept {
  Recorder::listener = nullptr;
  delete std::exchange(instance, nullptr);
  tell_queued(0, true);
}

void TextQueue::forget_parent() {
  // Threads of the parent may hold the old one's mutex; they don't exist here.
  turnstile = new Turnstile;
  if (instance == nullptr) return;
  instance->stuck_ = false;
  instance->batch_.clear();
  instance->taken_ = 0;
  instance->events_.clear();
  instance->feed_.reset();
  instance->pid_ = ::getpid();
  instance->child_ = true;
}

// True in a forked child before forget_parent().
bool TextQueue::is_parents() const noexcept { return pid_ != ::getpid(); }

// Returns false if this process has no record: a forked child before its first event.
bool TextQueue::open_feed() {
  const Recorder* recorder = Tracer::current();
  if (recorder == nullptr) return false;
  feed_ =
      std::make_unique<EventFeed>(RecordFile(recorder->memory(), Tracer::get().path()), !child_);
  return true;
}

void TextQueue::collect() noexcept {
  if (closed_ || is_parents()) return;
  try {
    if (feed_ == nullptr && !open_feed()) return;
    const std::size_t before = events_.size();
    feed_->read(events_, printer);
    if (size() > kMost) drop_from(before);
    tell_queued(size(), false);
  } catch (const std::exception&) {
    // Out of memory: the next read counts what it missed.
  }
}

// Replaces the events from index `begin` on by one that counts them.
void TextQueue::drop_from(std::size_t begin) {
  if (begin >= events_.size()) return;
  std::uint64_t missing = 0;
  for (std::size_t i = begin; i < events_.size(); ++i) {
    missing += std::max<std::uint64_t>(events_[i].missing, 1);
  }
  FedEvent gap{events_[begin].tsc, Place{}, 0, 0};
  events_.resize(begin);
  // Merge with the count of events dropped before.
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint32_t>::max();
  if (!events_.empty() && events_.back().missing != 0 && events_.back().tid == 0 &&
      events_.back().missing + missing <= kLargest) {
    missing += events_.back().missing;
    gap.tsc = events_.back().tsc;
    events_.pop_back();
  }
  gap.missing = static_cast<std::uint32_t>(std::min(missing, kLargest));
  events_.push_back(gap);
}

void TextQueue::next_batch() noexcept {
  if (!batch().empty()) return;
  batch_.clear();
  batch_.swap(events_);
  taken_ = 0;
}

std::vector<FedEvent> TextQueue::take(std::size_t most) {
  const auto left = batch();
  const auto taken = left.first(std::min(most, left.size()));
  std::vector<FedEvent> oldest(taken.begin(), taken.end());
  taken_ += taken.size();
  if (!taken.empty()) stuck_ = false;
  tell_queued(size(), true);
  return oldest;
}

void TextQueue::listen(bool may_wait) noexcept {
  TextQueue* queue = instance;
  if (queue == nullptr || queue->is_parents()) return;
  queue->collect();
  if (queue->size() < kWake || thread_id() == printer) return;
  wake();
  if (may_wait && queue->size() >= kFull && !queue->stuck_) queue->wait_for_room();
}

void TextQueue::wait_for_work(std::chrono::milliseconds most) {
  Turnstile* const at = turnstile;
  const WithoutGil unlocked;
  std::unique_lock lock(at->mutex);
  at->work.wait_for(lock, most, [at] { return at->wanted; });
  at->wanted = false;
}

void TextQueue::wake() {
  const std::lock_guard lock(turnstile->mutex);
  turnstile->wanted = true;
  turnstile->work.notify_all();
}

// Waits while the printing thread makes progress. The queue may be deleted meanwhile.
void TextQueue::wait_for_room() {
  bool has_room = false;
  {
    Turnstile* const at = turnstile;
    const WithoutGil unlocked;
    std::unique_lock lock(at->mutex);
    for (int idle = 0; !has_room && idle < kPatience; ++idle) {
      const std::uint64_t before = at->moves;
      has_room = at->room.wait_for(lock, kWait, [at] { return at->queued < kFull; });
      if (at->moves != before) idle = -1;
    }
  }
  if (!has_room && instance == this) stuck_ = true;
}

}  // namespace oddrank::trace
