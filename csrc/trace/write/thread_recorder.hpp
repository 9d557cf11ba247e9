// One thread's writer: its ring of events and its shadow stack. The hot path; no Python.h.
//
// Only its thread writes. Nothing here allocates, locks, calls libc or throws, except
// give_notice().
#pragma once

#include <cstdint>

#include "trace/format/format.hpp"
#include "trace/format/tsc.hpp"

namespace oddrank::trace {

class Recorder;

class ThreadRecorder {
 public:
  // Events between two clock readings. A killed process cannot read its clocks at its end.
  static constexpr std::uint64_t kClockEvery = 1 << 16;

  // Pushes a frame that begins or resumes: it becomes the innermost one.
  void enter(Place place) noexcept {
    const std::uint64_t depth = depth_++;
    const std::uint64_t at = depth < room_ ? depth : room_ - 1;
    slot_->stack()[at].store(place.bits, std::memory_order_relaxed);
    publish_depth();
  }
  // Pops the innermost frame, which ends or is suspended.
  void leave() noexcept {
    if (depth_ == 0) return;
    --depth_;
    publish_depth();
  }
  // Updates the innermost frame's position. The stack must not be empty.
  void move(Place place) noexcept {
    const std::uint64_t at = depth_ <= room_ ? depth_ - 1 : room_ - 1;
    slot_->stack()[at].store(place.bits, std::memory_order_release);
  }
  // Empties the stack; rebuild it with enter(), outermost frame first.
  void clear_stack() noexcept {
    depth_ = 0;
    publish_depth();
  }

  // Order: event, then head. A thread that dies in between leaves the old head, never half an
  // event.
  void append(Place place) noexcept {
    Event& event = ring_[head_ & mask_];
    event.tsc.store(read_tsc(), std::memory_order_relaxed);
    event.place.store(place.bits, std::memory_order_relaxed);
    slot_->head.store(++head_, std::memory_order_release);
    if ((head_ & notice_) == 0) [[unlikely]]
      give_notice();
  }

  std::uint64_t depth() const noexcept { return depth_; }
  std::uint64_t head() const noexcept { return head_; }
  ThreadSlot& slot() noexcept { return *slot_; }

 private:
  friend class Recorder;
  ThreadRecorder(Recorder& recorder, ThreadSlot& slot, Event* ring, std::uint32_t room);
  void publish_depth() noexcept {
    slot_->changes.store(++changes_, std::memory_order_relaxed);
    slot_->depth.store(depth_, std::memory_order_release);
  }
  void give_notice() noexcept;

  Recorder* recorder_;
  ThreadSlot* slot_;
  Event* ring_;  // in the file; &spare_ if this thread has no ring there
  std::uint64_t mask_;
  // A mask: give_notice() every half ring, and at least every kClockEvery events.
  std::uint64_t notice_;
  std::uint64_t head_ = 0;
  std::uint64_t depth_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t room_;
  Event spare_{};
};

}  // namespace oddrank::trace
