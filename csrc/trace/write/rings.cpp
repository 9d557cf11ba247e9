// The rarer steps of the writers, and collectives: into the ring and into the table of open ones.
#include "trace/write/rings.hpp"

#include "os/mix.hpp"
#include "trace/write/recorder.hpp"

namespace oddrank::trace {
namespace {

// Raises `highest` to `value`. Two threads may do it at once.
void raise(Word& highest, std::uint64_t value) noexcept {
  std::uint64_t known = highest.load(std::memory_order_relaxed);
  while (known < value && !highest.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
  }
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

PairCounts::Slot* PairCounts::find(std::uint64_t key, bool add) noexcept {
  const std::size_t begin = key * kMixStep >> 32;
  for (std::size_t i = 0; i < kMostTried; ++i) {
    Slot& slot = slots_[(begin + i) % slots_.size()];
    std::uint64_t known = slot.key.load(std::memory_order_relaxed);
    if (known == 0 && !add) return nullptr;
    if (known == 0 && slot.key.compare_exchange_strong(known, key, std::memory_order_relaxed)) {
      return &slot;
    }
    if (known == key) return &slot;
  }
  return nullptr;
}

std::uint64_t PairCounts::next(std::uint32_t group, std::uint32_t partner, Role role) noexcept {
  if (group == 0) return kNoSequence;
  const bool receives = role == Role::kRecv;
  const auto key = [&](std::uint32_t of) {
    return std::uint64_t{group} << 33 | std::uint64_t{receives ? 1U : 0U} << 32 | of;
  };
  if (partner == kNoRank) {
    // A receive without room to note it: no later one is sure of its number.
    if (find(key(kNoRank), true) == nullptr) receives_unknown_.store(true);
    return kNoSequence;
  }
  Slot* slot = find(key(partner), true);
  if (slot == nullptr) return kNoSequence;
  const std::uint64_t count = slot->count.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!receives) return count;
  const bool known = !receives_unknown_.load() && find(key(kNoRank), false) == nullptr;
  return known ? count : kNoSequence;
}

void GroupCounts::begin(std::uint32_t group, std::uint64_t count) noexcept {
  if (group == 0 || group > groups_.size()) return;
  const std::lock_guard lock(mutex_);
  Group& known = groups_[group - 1];
  if (known.under_way++ == 0 && count > known.count) {
    known.last += count - known.count;
    known.count = count;
  }
}

std::uint64_t GroupCounts::end(std::uint32_t group, std::uint64_t count, bool is_issued) noexcept {
  if (group == 0 || group > groups_.size()) return kNoSequence;
  const std::lock_guard lock(mutex_);
  Group& known = groups_[group - 1];
  if (known.under_way > 0) --known.under_way;
  known.count = std::max(known.count, count);
  return is_issued ? ++known.last : kNoSequence;
}

GroupSlot* CollectiveRing::group_of(std::uint32_t id, Role role) noexcept {
  if (id == 0 || id > groups_.size() || role == Role::kSend || role == Role::kRecv) return nullptr;
  return &groups_[id - 1];
}

void CollectiveRing::note_begin(std::uint32_t group) noexcept {
  if (GroupSlot* slot = group_of(group, Role::kNone)) {
    slot->begun.fetch_add(1, std::memory_order_relaxed);
    slot->last.store(read_tsc(), std::memory_order_relaxed);
    return;
  }
  // Ids have no gaps. How many groups have none is not known.
  raise(lost_groups_, group == 0 ? 1 : group - groups_.size());
}

std::uint64_t CollectiveRing::begin(CollectiveFacts facts, std::uint64_t count) noexcept {
  const std::uint64_t number = last_number_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (facts.group > kLastNameId) facts.group = 0;
  if (facts.operation > kLastNameId) facts.operation = 0;
  if (facts.role == Role::kSend || facts.role == Role::kRecv) {
    facts.sequence = pairs_.next(facts.group, facts.partner, facts.role);
  } else {
    note_begin(facts.group);
  }
  if (count != kNoCount) counts_.begin(facts.group, count);
  append(facts, number, Phase::kBegin);
  for (std::uint32_t i = 0; i < open_count_; ++i) {
    CollectiveSlot& slot = open_[(number + i) % open_count_];
    // `number` claims the slot; `commit` publishes its other fields.
    std::uint64_t free = 0;
    if (!slot.number.compare_exchange_strong(free, number, std::memory_order_acquire)) continue;
    pack(slot, facts, number, Phase::kBegin, read_tsc());
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
  if (slot == nullptr) return;
  slot->sequence.store(sequence, std::memory_order_relaxed);
  const CollectiveFacts facts = unpack(*slot);
  if (GroupSlot* group = group_of(facts.group, facts.role)) raise(group->issued, sequence);
}

void CollectiveRing::counted(std::uint64_t number, std::uint32_t group, std::uint64_t count,
                             bool is_issued) noexcept {
  const std::uint64_t sequence = counts_.end(group, count, is_issued);
  if (sequence != kNoSequence) numbered(number, sequence);
}

void CollectiveRing::close(std::uint64_t number, Phase phase) noexcept {
  CollectiveFacts facts;
  if (CollectiveSlot* slot = find_open(number)) {
    facts = unpack(*slot);
    slot->commit.store(0, std::memory_order_relaxed);
    slot->number.store(0, std::memory_order_release);
  }
  append(facts, number, phase);
  GroupSlot* group = group_of(facts.group, facts.role);
  if (group != nullptr && phase == Phase::kEnd && facts.sequence != kNoSequence) {
    raise(group->ended, facts.sequence);
  }
}

void CollectiveRing::append(const CollectiveFacts& facts, std::uint64_t number,
                            Phase phase) noexcept {
  append_to(slots_, mask_ + 1, claimed_, facts, number, phase, read_tsc());
}

void append_to(CollectiveSlot* slots, std::uint64_t count, Word& claimed,
               const CollectiveFacts& facts, std::uint64_t number, Phase phase,
               std::uint64_t tsc) noexcept {
  const std::uint64_t claim = claimed.fetch_add(1, std::memory_order_relaxed);
  CollectiveSlot& slot = slots[claim & (count - 1)];
  slot.commit.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  pack(slot, facts, number, phase, tsc);
  slot.commit.store(claim + 1, std::memory_order_release);
}

}  // namespace oddrank::trace
