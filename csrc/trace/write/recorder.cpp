// The rarer steps of the writers, and collectives: into the ring and into the table of open ones.
// Maps the file, fills its header, gives slots and rings to threads. Sends the end of a collective
// to the recorder that holds its begin.
#include "trace/write/recorder.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "os/clock.hpp"
#include "os/error.hpp"
#include "os/proc.hpp"
#include "trace/torch/collectives.hpp"

namespace oddrank::trace {
namespace {

char* map_file(const Fd& file, std::size_t bytes) {
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (memory == MAP_FAILED) throw_errno("mmap the record file");
  return static_cast<char*>(memory);
}

// Fills in all but the magic number: readers refuse the file until the constructor writes it.
Header* fill_header(char* map, std::size_t bytes, const Process& process) {
  auto* header = new (map) Header;
  header->version = kVersion;
  header->endian = kEndian;
  share_out(*header, bytes);
  header->process = process;
  header->process.pid = static_cast<std::uint32_t>(::getpid());
  header->process.parent_pid = static_cast<std::uint32_t>(::getppid());
  header->process.start_time = read_stat(::getpid()).start_time;
  header->process.pid_namespace = pid_namespace();
  set_text(header->boot_id, boot_id());
  set_text(header->host, process.host);
  set_text(header->job, process.job);
  set_text(header->hook, process.hook);
  set_text(header->arguments, process.arguments);
  return header;
}

// A ticket is the number of forks that led to this process, the group's id (here and not only in
// the table of open collectives, which may be full) and the collective's number: in a forked child,
// ends of the parent's collectives find nothing.
constexpr int kNumberBits = 38;
constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kNumberBits) - 1;
constexpr int kGroupBits = 16;
static_assert(kLastNameId == (1 << kGroupBits) - 1);
constexpr std::uint64_t kForksMask = (1 << (64 - kNumberBits - kGroupBits)) - 1;
// Collectives between two clock readings: Python events, which also read the clocks, may be rare.
constexpr std::uint64_t kClockEvery = 256;

// Constant-initialised and never destroyed.
constinit std::atomic<Recorder* (*)() noexcept> who_records = nullptr;
constinit std::atomic<Recorder*> own_recorder = nullptr;  // this process's, also once stopped
constinit std::atomic<std::uint64_t> forks = 0;

Recorder* recorder_of(std::uint64_t ticket) noexcept {
  const bool is_own = ticket >> (kNumberBits + kGroupBits) == (forks.load() & kForksMask);
  return is_own ? own_recorder.load(std::memory_order_acquire) : nullptr;
}

// Raises `highest` to `value`. Two threads may do it at once.
void raise(Word& highest, std::uint64_t value) noexcept {
  std::uint64_t known = highest.load(std::memory_order_relaxed);
  while (known < value && !highest.compare_exchange_weak(known, value, std::memory_order_relaxed)) {
  }
}

// Claims a ring's next slot and fills it. count: of slots, a power of two.
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

std::uint64_t begin(const CollectiveCall& call) noexcept {
  Recorder* recorder = who_records.load(std::memory_order_acquire)();
  if (recorder == nullptr) return 0;
  own_recorder.store(recorder, std::memory_order_release);
  const CollectiveFacts facts = recorder->facts_of(call);
  const std::uint64_t number = recorder->collectives().begin(facts, call.count);
  if (number % kClockEvery == 1) recorder->refresh_clock();
  return (forks.load() << kGroupBits | facts.group) << kNumberBits | (number & kNumberMask);
}

void numbered(std::uint64_t ticket, std::uint64_t sequence) noexcept {
  if (Recorder* recorder = recorder_of(ticket)) {
    recorder->collectives().numbered(ticket & kNumberMask, sequence);
  }
}

void counted(std::uint64_t ticket, std::uint64_t count, bool is_issued) noexcept {
  if (Recorder* recorder = recorder_of(ticket)) {
    const std::uint64_t group = ticket >> kNumberBits & kLastNameId;
    recorder->collectives().counted(ticket & kNumberMask, static_cast<std::uint32_t>(group), count,
                                    is_issued);
  }
}

void closed(std::uint64_t ticket, Phase phase) noexcept {
  if (Recorder* recorder = recorder_of(ticket)) {
    recorder->collectives().close(ticket & kNumberMask, phase);
  }
}

// The mapping is shared with the parent: the child must not end the parent's collectives.
void detach_child() noexcept {
  own_recorder.store(nullptr, std::memory_order_relaxed);
  ++forks;
}

constexpr CollectiveSink kSink{
    .begin = &begin, .numbered = &numbered, .counted = &counted, .closed = &closed};

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
  const auto used = std::span(open_).first(std::min<std::size_t>(open_.size(), (mask_ + 1) / 8));
  const auto found = std::ranges::find(used, number, &OpenSection::number);
  return found == used.end() ? nullptr : &*found;
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
  if (id == 0 || id > groups_.size() || is_pair(role)) return nullptr;
  return &groups_[id - 1];
}

void CollectiveRing::note_begin(std::uint32_t group) noexcept {
  if (GroupSlot* slot = group_of(group, Role::kNone)) {
    slot->begun.fetch_add(1, std::memory_order_relaxed);
    slot->last.store(read_tsc(), std::memory_order_relaxed);
    return;
  }
  // Ids have no gaps. How many groups have none is not known.
  raise(header_.lost_groups, group == 0 ? 1 : group - groups_.size());
}

std::uint64_t CollectiveRing::begin(CollectiveFacts facts, std::uint64_t count) noexcept {
  const std::uint64_t number = last_number_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (facts.group > kLastNameId) facts.group = 0;
  if (facts.operation > kLastNameId) facts.operation = 0;
  if (is_pair(facts.role)) {
    facts.sequence = pairs_.next(facts.group, facts.partner, facts.role);
  } else {
    note_begin(facts.group);
  }
  if (count != kNoCount) counts_.begin(facts.group, count);
  append_to(slots_, header_.collectives.count, header_.collectives_claimed, facts, number,
            Phase::kBegin, read_tsc());
  for (std::size_t i = 0; i < open_.size(); ++i) {
    CollectiveSlot& slot = open_[(number + i) % open_.size()];
    // `number` claims the slot; `commit` publishes its other fields.
    std::uint64_t free = 0;
    if (!slot.number.compare_exchange_strong(free, number, std::memory_order_acquire)) continue;
    pack(slot, facts, number, Phase::kBegin, read_tsc());
    slot.commit.store(number, std::memory_order_release);
    return number;
  }
  header_.lost_collectives.fetch_add(1, std::memory_order_relaxed);
  return number;
}

CollectiveSlot* CollectiveRing::find_open(std::uint64_t number) noexcept {
  for (std::size_t i = 0; i < open_.size(); ++i) {
    CollectiveSlot& slot = open_[(number + i) % open_.size()];
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
  append_to(slots_, header_.collectives.count, header_.collectives_claimed, facts, number, phase,
            read_tsc());
  GroupSlot* group = group_of(facts.group, facts.role);
  if (group != nullptr && phase == Phase::kEnd && facts.sequence != kNoSequence) {
    raise(group->ended, facts.sequence);
  }
}

void CollectiveRing::note_timed(const CollectiveFacts& facts, std::uint64_t begin,
                                std::uint64_t time) noexcept {
  if (header_.timed.count == 0) return;  // a small file
  append_to(timed_, header_.timed.count, header_.timed_claimed, facts, begin, Phase::kEnd, time);
}

Recorder::Recorder(const Fd& file, std::size_t bytes, const Process& process)
    : map_(map_file(file, bytes)),
      header_(fill_header(map_, bytes, process)),
      dictionary_(map_ + header_->dictionary.offset, header_->dictionary.count,
                  header_->dictionary_head, header_->lost_codes),
      marks_(map_, *header_),
      collectives_(map_, *header_) {
  // end_thread() must not allocate, and add_thread() only before it takes a slot.
  ended_.reserve(header_->threads.count);
  pens_.reserve(header_->threads.count);
  refresh_clock();
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(header_->magic, kMagic, sizeof kMagic);
}

Recorder::~Recorder() { ::munmap(map_, header_->size); }

ThreadRecorder* Recorder::add_thread(std::uint64_t python_id, std::uint32_t tid,
                                     std::string_view name) {
  std::unique_ptr<ThreadRecorder> pen(new ThreadRecorder(*this));
  const std::lock_guard lock(mutex_);
  ThreadSlot* slot = nullptr;
  bool fresh = false;
  // Once all blocks are taken, reuse the slot and ring of a thread that has ended.
  const bool blocks_left =
      header_->blocks_taken.load(std::memory_order_relaxed) < header_->rings.count;
  auto reused = std::ranges::find_if(ended_, [](const auto* one) { return one->ring_events != 0; });
  if (next_slot_ < header_->threads.count && (blocks_left || reused == ended_.end())) {
    slot = reinterpret_cast<ThreadSlot*>(map_ + header_->threads.offset +
                                         std::uint64_t{next_slot_} * header_->threads.stride);
    fresh = true;
  } else if (!ended_.empty()) {
    // Take the slot of the thread that ended first: recent history matters more.
    if (reused == ended_.end()) reused = ended_.begin();
    slot = *reused;
    ended_.erase(reused);
  } else {
    header_->lost_threads.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  const std::uint64_t generation = (slot->state.load(std::memory_order_relaxed) >> 32) + 1;
  // Mark as free: a reader that copies the slot now finds another state when it checks again.
  slot->state.store(generation << 32, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  if (fresh) {
    const std::uint32_t blocks = next_slot_ == 0 ? first_ring_blocks(*header_) : 1;
    const Event* ring = take_blocks(blocks);
    if (ring != nullptr) {
      const auto offset = reinterpret_cast<const char*>(ring) - map_;
      publish(slot->ring_offset, static_cast<std::uint64_t>(offset));
      publish(slot->ring_events,
              static_cast<std::uint32_t>(blocks * (header_->rings.stride / sizeof(Event))));
    }
    ++next_slot_;
  }
  slot->head.store(0, std::memory_order_relaxed);
  slot->depth.store(0, std::memory_order_relaxed);
  slot->changes.store(0, std::memory_order_relaxed);
  slot->sampled.store(0, std::memory_order_relaxed);
  publish(slot->python_id, python_id);
  publish(slot->tid, tid);
  publish(slot->stack_room, stack_room_of(*header_));
  publish_text(slot->name, name);
  Event* ring =
      slot->ring_events == 0 ? nullptr : reinterpret_cast<Event*>(map_ + slot->ring_offset);
  pen->begin(*slot, ring);
  pens_.push_back(std::move(pen));
  slot->state.store(generation << 32 | static_cast<std::uint64_t>(ThreadState::kLive),
                    std::memory_order_release);
  return pens_.back().get();
}

void Recorder::name_thread(ThreadRecorder& thread, std::string_view name) noexcept {
  publish_text(thread.slot_->name, name);
}

void Recorder::end_thread(ThreadRecorder& thread) noexcept {
  const std::lock_guard lock(mutex_);
  ThreadSlot* slot = thread.slot_;
  const std::uint64_t generation = slot->state.load(std::memory_order_relaxed) >> 32;
  slot->state.store(generation << 32 | static_cast<std::uint64_t>(ThreadState::kEnded),
                    std::memory_order_release);
  ended_.push_back(slot);
  std::erase_if(pens_, [&](const auto& pen) { return pen.get() == &thread; });
}

Event* Recorder::take_blocks(std::uint32_t blocks) noexcept {
  const std::uint64_t taken = header_->blocks_taken.load(std::memory_order_relaxed);
  if (taken + blocks > header_->rings.count) return nullptr;
  header_->blocks_taken.store(taken + blocks, std::memory_order_relaxed);
  return reinterpret_cast<Event*>(map_ + header_->rings.offset + taken * header_->rings.stride);
}

void Recorder::set_hook_state(HookState state, std::string_view displaced_by) noexcept {
  publish_text(header_->displaced_by, displaced_by);
  header_->hook_state.store(static_cast<std::uint64_t>(state), std::memory_order_release);
}

void Recorder::note_raised(std::string_view raised, std::string_view message, std::string_view at,
                           bool has_ended) noexcept {
  const bool runs = header_->end.load(std::memory_order_relaxed) == 0;
  if (!raised.empty() && (has_ended || (runs && header_->raised[0] == '\0'))) {
    publish_text(header_->raised_at, at);
    publish_text(header_->message, message);
    publish_text(header_->raised, raised);
  }
  if (has_ended) {
    header_->end.store(static_cast<std::uint64_t>(End::kEnding), std::memory_order_release);
  }
}

void Recorder::note_exit(int code) noexcept {
  const std::uint64_t seen_by_parent = static_cast<std::uint32_t>(code) & 0xFF;
  header_->end.store(static_cast<std::uint64_t>(End::kExited) | seen_by_parent << 32,
                     std::memory_order_release);
}

void Recorder::note_collectives() noexcept {
  std::uint64_t never = 0;
  header_->collectives_since.compare_exchange_strong(never, read_tsc(), std::memory_order_relaxed);
}

// The dictionary returns the same id for the same name.
CollectiveFacts Recorder::facts_of(const CollectiveCall& call) noexcept {
  CollectiveFacts facts = call.facts;
  facts.group = dictionary_.group(call.group);
  facts.operation = dictionary_.operation(call.operation);
  if (facts.group > kLastNameId) facts.group = 0;
  return facts;
}

// Reads the clocks again where this thread was interrupted between two of them.
void Recorder::refresh_clock() noexcept {
  constexpr int kPairs = 5;
  constexpr std::int64_t kAtOnceNs = 20'000;
  if (clock_busy_.exchange(true, std::memory_order_acquire)) return;
  std::uint64_t tsc = 0;
  std::int64_t monotonic = 0;
  std::int64_t realtime = 0;
  for (int i = 0; i < kPairs; ++i) {
    monotonic = monotonic_ns();
    tsc = read_tsc();
    realtime = clock_ns(CLOCK_REALTIME);
    if (monotonic_ns() - monotonic < kAtOnceNs) break;
  }
  // Keep the first pair: with the newest one it gives the counter's rate.
  const std::uint32_t turn = clock_turn_.load(std::memory_order_relaxed);
  ClockPair& pair = header_->clocks[turn == 0 ? 0 : 1 + (turn - 1) % (kClockPairs - 1)];
  clock_turn_.store(turn + 1, std::memory_order_relaxed);
  pair.number.store(2 * turn + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  pair.tsc.store(tsc, std::memory_order_relaxed);
  pair.monotonic_ns.store(static_cast<std::uint64_t>(monotonic), std::memory_order_relaxed);
  pair.realtime_ns.store(static_cast<std::uint64_t>(realtime), std::memory_order_relaxed);
  pair.number.store(2 * turn + 2, std::memory_order_release);
  clock_busy_.store(false, std::memory_order_release);
}

const CollectiveSink& recording_sink(Recorder* (*current)() noexcept) noexcept {
  who_records.store(current, std::memory_order_release);
  static const int registered = ::pthread_atfork(nullptr, nullptr, &detach_child);
  static_cast<void>(registered);
  return kSink;
}

}  // namespace oddrank::trace
