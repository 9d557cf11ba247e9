// Marks and collectives: 64-byte slots that any thread claims by counting up. No Python.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "trace/record/format.hpp"
#include "trace/record/tsc.hpp"

namespace oddrank::trace {

// Any thread may call. A slot that is overwritten while a reader copies it shows another claim
// number afterwards; one whose writer died in between keeps an old or no commit word.
class MarkRing {
 public:
  MarkRing(MarkSlot* slots, std::uint32_t count, Word& claimed) noexcept
      : slots_(slots), mask_(count - 1), claimed_(claimed) {}

  void add(MarkKind kind, std::uint64_t value, std::string_view text, std::uint32_t tid) noexcept {
    const std::uint64_t number = claimed_.fetch_add(1, std::memory_order_relaxed);
    MarkSlot& slot = slots_[number & mask_];
    // Not this lap's yet: a reader that comes now must not take half of it for the old one.
    slot.commit.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    std::uint64_t words[4] = {};
    const std::size_t size = text.size() < sizeof words ? text.size() : sizeof words;
    std::copy_n(text.data(), size, reinterpret_cast<char*>(words));  // text may be null and empty
    slot.tsc.store(read_tsc(), std::memory_order_relaxed);
    slot.value.store(value, std::memory_order_relaxed);
    slot.who.store(std::uint64_t{tid} << 32 | size << 16 | static_cast<std::uint64_t>(kind),
                   std::memory_order_relaxed);
    for (int i = 0; i < 4; ++i) slot.text[i].store(words[i], std::memory_order_relaxed);
    slot.commit.store(number + 1, std::memory_order_release);
  }

 private:
  MarkSlot* slots_;
  std::uint64_t mask_;
  Word& claimed_;
};

// What is told of a collective as it begins.
struct CollectiveFacts {
  std::uint32_t group = 0;      // id in the dictionary
  std::uint32_t operation = 0;  // id in the dictionary
  std::uint64_t sequence = ~std::uint64_t{0};
  std::uint64_t bytes = 0;
  std::uint16_t type = kNoType;  // torch's ScalarType
  std::uint32_t tid = 0;
};

// The history of collectives, and those that are open: a hang of hours cannot push them out.
class CollectiveRing {
 public:
  CollectiveRing(CollectiveSlot* slots, std::uint32_t count, Word& claimed, CollectiveSlot* open,
                 std::uint32_t open_count, Word& lost) noexcept
      : slots_(slots),
        mask_(count - 1),
        claimed_(claimed),
        open_(open),
        open_count_(open_count),
        lost_(lost) {}

  // Returns the collective's number, from 1, for the others.
  std::uint64_t begin(const CollectiveFacts& facts) noexcept;
  // It has been issued, and only that gives it its number in the group: the open one and the end
  // show it. Before end().
  void numbered(std::uint64_t number, std::uint64_t sequence) noexcept;
  // Once per number; from any thread.
  void end(std::uint64_t number) noexcept { close(number, Phase::kEnd); }
  // Instead of end(), where it can't be known.
  void issued(std::uint64_t number) noexcept { close(number, Phase::kIssued); }

 private:
  CollectiveSlot* find_open(std::uint64_t number) noexcept;
  void close(std::uint64_t number, Phase phase) noexcept;
  void append(const CollectiveFacts& facts, std::uint64_t number, Phase phase) noexcept;

  CollectiveSlot* slots_;
  std::uint64_t mask_;
  Word& claimed_;
  CollectiveSlot* open_;
  std::uint32_t open_count_;
  Word& lost_;
  Word last_number_{0};
};

}  // namespace oddrank::trace
