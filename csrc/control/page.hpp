// The page shared by a worker and its guard: the worker's progress, readable without its help; and
// the timestamps of collectives, which mark it.
//
// Only the worker writes; readers never wait for it. A worker that is stopped or killed in the
// middle of a write leaves the sequence odd: after some tries a reader takes the torn copy. Marks
// and waiting state of collectives are one separate word, so that a collective need not rewrite the
// texts.
#pragma once

#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "os/clock.hpp"
#include "os/error.hpp"

namespace oddrank::control {

// The worker's progress at one moment.
struct Progress {
  std::uint64_t progress =
      0;  // stage number << 32 | marks in that stage; read() adds marks of collectives
  std::uint32_t stage_number = 0;
  std::uint8_t waiting = 0;  // inside a collective: waiting for other ranks
  std::uint8_t published = 0;
  std::uint8_t torn = 0;  // set by read(): the worker is in the middle of a write
  std::uint8_t unused = 0;
  char stage[48] = {};
  char step[128] = {};
};
static_assert(sizeof(Progress) % 8 == 0);

class Page {
 public:
  // Call under Worker's mutex. Keeps the marks of the stage's collectives.
  void write(const Progress& mark) noexcept { write(mark, kAllMarks); }
  // The same for the first mark of a stage. Resets the marks of collectives.
  void begin_stage(const Progress& mark) noexcept { write(mark, 0); }

  // Count a mark each for begin and end of a collective. From any thread; no system call, no lock.
  void enter_collective() noexcept {
    move_marks([](std::uint64_t was) { return (was | kWaiting) + kOneMark; });
  }
  void leave_collective() noexcept {
    move_marks([](std::uint64_t was) { return (was & kAllMarks) + kOneMark; });
  }

  Progress read() const noexcept {
    std::array<std::uint64_t, kWords> words{};
    std::uint64_t collectives = 0;
    bool whole = false;
    for (int tries = 0; tries < 64 && !whole; ++tries) {
      const std::uint32_t before = sequence_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
      collectives = collective_marks_.load(std::memory_order_acquire);
      std::atomic_thread_fence(std::memory_order_acquire);
      whole = before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before;
    }
    Progress mark;
    std::memcpy(static_cast<void*>(&mark), words.data(), sizeof mark);
    mark.progress += collectives / kOneMark;
    mark.waiting = (collectives & kWaiting) != 0 ? 1 : 0;
    mark.torn = whole ? 0 : 1;
    mark.stage[sizeof mark.stage - 1] = 0;
    mark.step[sizeof mark.step - 1] = 0;
    return mark;
  }

  std::atomic<std::int32_t> terminated{0};     // the first SIGTERM or SIGINT; 0: none
  std::atomic<std::int32_t> terminated_by{0};  // pid of its sender
  std::atomic<std::int64_t> terminated_ns{0};
  std::atomic<std::int32_t> exit_noted{INT_MIN};   // argument of exit(); INT_MIN: not called
  std::atomic<std::int64_t> resolver_started{0};   // CLOCK_MONOTONIC; 0: not measured
  std::atomic<std::int64_t> resolver_answered{0};  // the same; 0: no answer yet

 private:
  static constexpr std::size_t kWords = sizeof(Progress) / 8;
  static constexpr std::uint64_t kWaiting = 1, kOneMark = 2, kAllMarks = ~kWaiting;

  template <typename Change>
  void move_marks(Change change) noexcept {
    std::uint64_t was = collective_marks_.load(std::memory_order_relaxed);
    while (!collective_marks_.compare_exchange_weak(was, change(was), std::memory_order_release,
                                                    std::memory_order_relaxed)) {
    }
  }

  // Order: odd sequence, words, collectives, even sequence. A reader that sees the new collectives
  // word also sees the changed sequence.
  void write(const Progress& mark, std::uint64_t kept) noexcept {
    std::array<std::uint64_t, kWords> words{};
    std::memcpy(words.data(), &mark, sizeof mark);
    const std::uint32_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence | 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
    move_marks(
        [&](std::uint64_t was) { return (was & kept) | (mark.waiting != 0 ? kWaiting : 0); });
    sequence_.store((sequence | 1) + 1, std::memory_order_release);
  }

  std::atomic<std::uint32_t> sequence_{0};
  std::atomic<std::uint64_t> collective_marks_{
      0};  // marks of this stage's collectives << 1 | waiting
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};
static_assert(sizeof(Page) <= 4096);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Begin and duration of many collectives, with little overhead. Between enter() and leave() the
// page shows the worker as waiting. The constructor allocates and touches all memory; collectives
// beyond it are dropped. The page must outlive it. One thread.
class Timestamps {
 public:
  static constexpr std::int64_t kMost = std::int64_t{1} << 26;

  // Throws Error if capacity is not 1 to kMost.
  Timestamps(Page& page, std::int64_t capacity) : page_(&page) {
    if (capacity < 1 || capacity > kMost) {
      throw Error("timestamps for " + std::to_string(capacity) + " collectives: 1 to " +
                  std::to_string(kMost) + " fit, take several");
    }
    starts_.resize(static_cast<std::size_t>(capacity));
    durations_.resize(static_cast<std::size_t>(capacity));
  }

  // Order: page, then timestamp; in leave() timestamp, then page. The time between the timestamps
  // is the collective's alone, and a rank that is stopped in between shows as waiting.
  void enter() noexcept {
    page_->enter_collective();
    entered_ns_ = monotonic_ns();
  }

  // Does nothing without enter().
  void leave() noexcept {
    const std::int64_t now = monotonic_ns();
    if (entered_ns_ == 0) return;
    page_->leave_collective();
    if (count_ < starts_.size()) {
      starts_[count_] = entered_ns_;
      durations_[count_] = now - entered_ns_;
      ++count_;
    } else {
      ++dropped_;
    }
    entered_ns_ = 0;
  }

  // The collectives that leave() recorded, in ns; starts are readings of CLOCK_MONOTONIC.
  std::size_t count() const noexcept { return count_; }
  std::uint64_t dropped() const noexcept { return dropped_; }
  const std::int64_t* starts() const noexcept { return starts_.data(); }
  const std::int64_t* durations() const noexcept { return durations_.data(); }

 private:
  Page* page_;
  std::int64_t entered_ns_ = 0;  // of the open collective; 0: none is open
  std::size_t count_ = 0;
  std::uint64_t dropped_ = 0;
  std::vector<std::int64_t> starts_, durations_;
};

}  // namespace oddrank::control
