// The page that a worker and its guard share: what the worker does now, readable without its help.
//
// The worker alone writes; a reader never waits for it. A worker that was stopped or killed in the
// middle of a write leaves the sequence odd: the reader then takes what is there after some tries.
// What changes with every collective, progress and waiting, is one word of its own beside the
// texts.
#pragma once

#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace oddrank::control {

// One consistent picture of the worker's progress.
struct Mark {
  std::uint64_t progress = 0;  // stage number << 32 | marks in that stage; as read: laps' ones too
  std::uint32_t stage_number = 0;
  std::uint8_t waiting = 0;  // inside a collective, that is waiting for others
  std::uint8_t published = 0;
  std::uint8_t torn = 0;  // as read: the worker stands in the middle of a write
  std::uint8_t unused = 0;
  char stage[48] = {};
  char step[128] = {};

  // Cuts what does not fit.
  template <std::size_t kSize>
  static void set(char (&field)[kSize], std::string_view text) noexcept {
    const std::size_t size = text.size() < kSize - 1 ? text.size() : kSize - 1;
    std::memcpy(field, text.data(), size);
    std::memset(field + size, 0, kSize - size);
  }
};
static_assert(sizeof(Mark) % 8 == 0);

class Page {
 public:
  // Callers are serialised (Worker's mutex). The marks of the stage's laps stay.
  void write(const Mark& mark) noexcept { write(mark, kLapMarks); }
  // The same for the first mark of a stage, which has had no laps.
  void begin_stage(const Mark& mark) noexcept { write(mark, 0); }

  // A collective begins and ends: a mark each. From any thread; no call of the kernel, no lock.
  void enter_lap() noexcept {
    move_laps([](std::uint64_t was) { return (was | kWaiting) + kLap; });
  }
  void leave_lap() noexcept {
    move_laps([](std::uint64_t was) { return (was & kLapMarks) + kLap; });
  }

  Mark read() const noexcept {
    std::array<std::uint64_t, kWords> words{};
    std::uint64_t laps = 0;
    bool whole = false;
    for (int tries = 0; tries < 64 && !whole; ++tries) {
      const std::uint32_t before = sequence_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
      laps = laps_.load(std::memory_order_acquire);
      std::atomic_thread_fence(std::memory_order_acquire);
      whole = before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before;
    }
    Mark mark;
    std::memcpy(static_cast<void*>(&mark), words.data(), sizeof mark);
    mark.progress += laps / kLap;
    mark.waiting = (laps & kWaiting) != 0 ? 1 : 0;
    mark.torn = whole ? 0 : 1;
    mark.stage[sizeof mark.stage - 1] = 0;
    mark.step[sizeof mark.step - 1] = 0;
    return mark;
  }

  std::atomic<std::int32_t> terminated{0};     // SIGTERM or SIGINT seen by the watchdog
  std::atomic<std::int32_t> terminated_by{0};  // who sent it
  std::atomic<std::int64_t> terminated_ns{0};
  std::atomic<std::int32_t> exit_noted{INT_MIN};   // the argument of exit()
  std::atomic<std::int64_t> resolver_started{0};   // CLOCK_MONOTONIC; 0: not measured
  std::atomic<std::int64_t> resolver_answered{0};  // 0: not yet

 private:
  static constexpr std::size_t kWords = sizeof(Mark) / 8;
  static constexpr std::uint64_t kWaiting = 1, kLap = 2, kLapMarks = ~kWaiting;

  template <typename Change>
  void move_laps(Change change) noexcept {
    std::uint64_t was = laps_.load(std::memory_order_relaxed);
    while (!laps_.compare_exchange_weak(was, change(was), std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
  }

  // Order: odd sequence, words, laps, even sequence. A reader that sees the new word of laps also
  // sees that the sequence has moved on.
  void write(const Mark& mark, std::uint64_t kept) noexcept {
    std::array<std::uint64_t, kWords> words{};
    std::memcpy(words.data(), &mark, sizeof mark);
    const std::uint32_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence | 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
    move_laps([&](std::uint64_t was) { return (was & kept) | (mark.waiting != 0 ? kWaiting : 0); });
    sequence_.store((sequence | 1) + 1, std::memory_order_release);
  }

  std::atomic<std::uint32_t> sequence_{0};
  std::atomic<std::uint64_t> laps_{0};  // marks of this stage's laps << 1 | waiting
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};
static_assert(sizeof(Page) <= 4096);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace oddrank::control
