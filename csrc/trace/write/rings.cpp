// The rarer steps of the writers, and collectives: into the ring and into the table of open ones.
#include "trace/write/rings.hpp"

#include "trace/write/recorder.hpp"

namespace oddrank::trace {
namespace {

void fill(CollectiveSlot& slot, const CollectiveFacts& facts, std::uint64_t number,
          Phase phase) noexcept {
  slot.tsc.store(read_tsc(), std::memory_order_relaxed);
  slot.number.store(number, std::memory_order_relaxed);
  slot.sequence.store(facts.sequence, std::memory_order_relaxed);
  slot.bytes.store(facts.bytes, std::memory_order_relaxed);
  slot.names.store(std::uint64_t{facts.group} << 32 | facts.operation, std::memory_order_relaxed);
  slot.who.store(std::uint64_t{facts.tid} << 32 | std::uint64_t{facts.type} << 16 |
                     static_cast<std::uint64_t>(phase),
                 std::memory_order_relaxed);
}

// Reads back the facts that begin() stored in the table.
CollectiveFacts facts_of(const CollectiveSlot& slot) noexcept {
  const std::uint64_t names = slot.names.load(std::memory_order_relaxed);
  const std::uint64_t who = slot.who.load(std::memory_order_relaxed);
  return {static_cast<std::uint32_t>(names >> 32),       static_cast<std::uint32_t>(names),
          slot.sequence.load(std::memory_order_relaxed), slot.bytes.load(std::memory_order_relaxed),
          static_cast<std::uint16_t>(who >> 16),         static_cast<std::uint32_t>(who >> 32)};
}

}  // namespace

void ThreadRecorder::begin(ThreadSlot& slot, Event* ring) noexcept {
  slot_ = &slot;
  room_ = slot.stack_room;
  if (ring == nullptr) return;
  ring_ = ring;
  mask_ = slot.ring_events - 1;
  notice_ = std::min(kClockEvery, (mask_ + 1) / 2) - 1;
}

void ThreadRecorder::give_notice() noexcept {
  if (head_ % kClockEvery == 0) recorder_->refresh_clock();
  if (Recorder::listener != nullptr) Recorder::listener(true);
}

MarkRing::OpenSection* MarkRing::find_open(std::uint64_t number) noexcept {
  const std::size_t most = std::min<std::size_t>(open_.size(), (mask_ + 1) / 8);
  const auto found = std::find_if(open_.begin(), open_.begin() + most,
                                  [&](const auto& one) { return one.number == number; });
  return found == open_.begin() + most ? nullptr : &*found;
}

void MarkRing::begin_section(std::uint64_t number, std::string_view name,
                             std::uint32_t tid) noexcept {
  const std::uint64_t tsc = read_tsc();
  {
    const std::lock_guard lock(mutex_);
    if (OpenSection* one = find_open(0)) {
      const std::size_t size = std::min(name.size(), sizeof one->name);
      *one = {number, tsc, tid, static_cast<std::uint32_t>(size), {}};
      name.copy(one->name, size);
    }
  }
  if ((write(MarkKind::kSectionBegin, number, name, tid, tsc) & (mask_ / 2)) == 0) {
    write_open_sections();
  }
}

void MarkRing::end_section(std::uint64_t number, std::string_view name,
                           std::uint32_t tid) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (OpenSection* open = find_open(number)) open->number = 0;
  }
  add(MarkKind::kSectionEnd, number, name, tid);
}

void MarkRing::forget_open_sections() noexcept {
  const std::lock_guard lock(mutex_);
  open_ = {};
}

void MarkRing::write_open_sections() noexcept {
  const std::lock_guard lock(mutex_);
  for (const OpenSection& one : open_) {
    if (one.number == 0) continue;
    write(MarkKind::kSectionBegin, one.number, {one.name, one.size}, one.tid, one.tsc);
  }
}

std::uint64_t CollectiveRing::begin(const CollectiveFacts& facts) noexcept {
  const std::uint64_t number = last_number_.fetch_add(1, std::memory_order_relaxed) + 1;
  append(facts, number, Phase::kBegin);
  for (std::uint32_t i = 0; i < open_count_; ++i) {
    CollectiveSlot& slot = open_[(number + i) % open_count_];
    // `number` claims the slot; `commit` publishes its other fields.
    std::uint64_t free = 0;
    if (!slot.number.compare_exchange_strong(free, number, std::memory_order_acquire)) continue;
    fill(slot, facts, number, Phase::kBegin);
    slot.commit.store(number, std::memory_order_release);
    return number;
  }
  lost_.fetch_add(1, std::memory_order_relaxed);
  return number;
}

CollectiveSlot* CollectiveRing::find_open(std::uint64_t number) noexcept {
  for (std::uint32_t i = 0; i < open_count_; ++i) {
    CollectiveSlot& slot = open_[(number + i) % open_count_];
    if (slot.number.load(std::memory_order_acquire) == number) return &slot;
  }
  return nullptr;
}

void CollectiveRing::numbered(std::uint64_t number, std::uint64_t sequence) noexcept {
  CollectiveSlot* slot = find_open(number);
  if (slot != nullptr) slot->sequence.store(sequence, std::memory_order_relaxed);
}

void CollectiveRing::close(std::uint64_t number, Phase phase) noexcept {
  CollectiveFacts facts;
  if (CollectiveSlot* slot = find_open(number)) {
    facts = facts_of(*slot);
    slot->commit.store(0, std::memory_order_relaxed);
    slot->number.store(0, std::memory_order_release);
  }
  append(facts, number, phase);
}

void CollectiveRing::append(const CollectiveFacts& facts, std::uint64_t number,
                            Phase phase) noexcept {
  const std::uint64_t claim = claimed_.fetch_add(1, std::memory_order_relaxed);
  CollectiveSlot& slot = slots_[claim & mask_];
  slot.commit.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  fill(slot, facts, number, phase);
  slot.commit.store(claim + 1, std::memory_order_release);
}

}  // namespace oddrank::trace
