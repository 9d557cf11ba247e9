// Listens to the recorder, copies, waits.
#include "trace/hooks/text_queue.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

constexpr std::chrono::seconds kPatience{2};

}  // namespace

void TextQueue::begin(int wake, std::uint32_t printer) {
  if (instance != nullptr) throw Error("the text of a run is being written: one at a time");
  std::unique_ptr<TextQueue> made(new TextQueue(wake, printer));
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
  if (instance == nullptr) return;
  const std::unique_ptr<TextQueue> ended(std::exchange(instance, nullptr));
  const std::lock_guard lock(ended->waiting_->mutex);
  ended->waiting_->ended = true;
  ended->waiting_->moved.notify_all();
}

void TextQueue::forget_parent(int wake, std::uint32_t printer) {
  if (instance == nullptr) return;
  // Other threads of the parent may have held its mutex, and are no more.
  static_cast<void>(new std::shared_ptr<Waiting>(instance->waiting_));
  instance->waiting_ = std::make_shared<Waiting>();
  instance->wake_ = wake;
  instance->printer_ = printer;
  instance->stuck_ = false;
  instance->events_.clear();
  instance->feed_.reset();
  instance->pid_ = 0;
}

// False where this process has no record: a forked child, before its first event.
bool TextQueue::open_feed() {
  if (Tracer::current() == nullptr) return false;
  const bool child = pid_ == 0 && instance == this;
  feed_ = std::make_unique<EventFeed>(RecordFile(Tracer::get().path()), !child);
  pid_ = ::getpid();
  return true;
}

void TextQueue::collect() noexcept {
  if (closed_) return;
  try {
    if (feed_ != nullptr && pid_ != ::getpid()) return;  // forget_parent() comes
    if (feed_ == nullptr && !open_feed()) return;
    const std::size_t before = events_.size();
    feed_->read(events_, printer_);
    if (events_.size() > kMost) drop_from(before);
    waiting_->queued = events_.size();
  } catch (const std::exception&) {
    // Out of memory, or the file is gone: the next time tells how many were missed.
  }
}

// The events from number `begin` on become one that says how many they were.
void TextQueue::drop_from(std::size_t begin) {
  if (begin >= events_.size()) return;
  std::uint64_t missing = 0;
  for (std::size_t i = begin; i < events_.size(); ++i) {
    missing += std::max<std::uint64_t>(events_[i].missing, 1);
  }
  FedEvent gap{events_[begin].tsc, Place{}, 0, 0};
  events_.resize(begin);
  // Together with what was dropped before.
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

std::vector<FedEvent> TextQueue::take(std::size_t most) {
  const auto taken = static_cast<std::ptrdiff_t>(std::min(most, events_.size()));
  std::vector<FedEvent> oldest(events_.begin(), events_.begin() + taken);
  events_.erase(events_.begin(), events_.begin() + taken);
  if (taken > 0) stuck_ = false;
  const std::lock_guard lock(waiting_->mutex);
  waiting_->queued = events_.size();
  waiting_->moved.notify_all();
  return oldest;
}

void TextQueue::listen(bool may_wait) noexcept {
  TextQueue* queue = instance;
  if (queue == nullptr || Tracer::tid() == queue->printer_) return;
  queue->collect();
  if (queue->events_.size() < kWake) return;
  const char byte = 0;
  static_cast<void>(!::write(queue->wake_, &byte, 1));  // a full pipe wakes as well
  if (may_wait && queue->events_.size() >= kFull && !queue->stuck_) queue->wait_for_room();
}

void TextQueue::wait_for_room() noexcept {
  // Kept by whoever waits: the queue may end meanwhile.
  const std::shared_ptr<Waiting> waiting = waiting_;
  bool moved = true;
  PyThreadState* state = PyEval_SaveThread();
  {
    std::unique_lock lock(waiting->mutex);
    moved = waiting->moved.wait_for(lock, kPatience,
                                    [&] { return waiting->ended || waiting->queued < kFull; });
  }
  PyEval_RestoreThread(state);
  if (!moved && instance == this) stuck_ = true;
}

}  // namespace oddrank::trace
