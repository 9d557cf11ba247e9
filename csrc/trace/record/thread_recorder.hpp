// One thread's pen: its ring of events and its shadow stack. The hot path; no Python.h.
//
// Written by its thread alone. Nothing here allocates, locks, calls libc or throws.
#pragma once

#include <cstdint>
#include <memory>

#include "trace/record/format.hpp"
#include "trace/record/tsc.hpp"

namespace oddrank::trace {

class Recorder;

class ThreadRecorder {
 public:
  // Every so many events the recorder reads its clocks: who is killed cannot do it at the end.
  static constexpr std::uint64_t kClockEvery = 1 << 16;

  // A frame begins or goes on: it is the innermost one from here.
  void enter(const void* frame, Place place) noexcept {
    const std::uint64_t depth = depth_++;
    const std::uint64_t at = depth < room_ ? depth : room_ - 1;
    frames_[at] = frame;
    slot_->stack()[at].store(place.bits, std::memory_order_relaxed);
    publish_depth();
  }
  // The innermost frame ends or stands still.
  void leave() noexcept {
    if (depth_ == 0) return;
    --depth_;
    publish_depth();
  }
  // The innermost frame comes to another place.
  void move(Place place) noexcept {
    const std::uint64_t at = depth_ <= room_ ? depth_ - 1 : room_ - 1;
    slot_->stack()[at].store(place.bits, std::memory_order_release);
  }
  // Whether `frame` is the innermost one; if not, the stack has to be built anew. Frames deeper
  // than there is room for share the last entry, which then knows the one that moved last.
  bool is_innermost(const void* frame) const noexcept {
    if (depth_ == 0) return false;
    return frames_[depth_ <= room_ ? depth_ - 1 : room_ - 1] == frame;
  }
  // Before the stack is built anew by enter(), outermost frame first.
  void clear_stack() noexcept {
    depth_ = 0;
    publish_depth();
  }

  // Record first, publish second: who dies in between leaves the old head, never half an event.
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
  Event* ring_;  // without a ring of its own in the file: spare_
  std::uint64_t mask_;
  // A mask too: half a ring has been written, or it is time for the clock.
  std::uint64_t notice_;
  std::uint64_t head_ = 0;
  std::uint64_t depth_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t room_;
  // Which frame each entry is of: pointers to compare, never to follow. Not in the file.
  std::unique_ptr<const void*[]> frames_;
  Event spare_{};
};

}  // namespace oddrank::trace
