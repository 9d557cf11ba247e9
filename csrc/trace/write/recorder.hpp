// Writes into a record while the job runs, by parts: the dictionary of names and code objects, each
// thread's ring of events and shadow stack, the rings of marks and collectives, whose slots any
// thread claims, and the process's recorder, which owns the mapping of the file and gives each
// thread its writer. The hot path; no Python.h.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/fd.hpp"
#include "os/mix.hpp"
#include "trace/format/format.hpp"
#include "trace/write/budget.hpp"

namespace oddrank::trace {

// The dictionary's facts of a code object. The views must live only during the call.
struct CodeFacts {
  std::string_view name;  // qualified
  std::string_view file;
  std::string_view linetable;
  std::uint32_t first_line = 0;
  std::uint32_t level = 0;  // the filter's Level
};

// Appends entries and returns their ids, which count from 1; 0 if there is no room. Equal entries
// share an id. Thread-safe: takes a mutex, once per code object and twice per collective. Allocates
// only in its constructor: works in a process that is out of memory.
//
// A group is looked up at every collective, and may have thousands of ranks: it is known again by
// a hash of its name, back end and up to kMostHashed of its ranks.
class DictionaryWriter {
 public:
  // `region` must be all zeros; `head` is the header's byte count. Throws std::bad_alloc.
  DictionaryWriter(char* region, std::size_t bytes, Word& head, Word& lost_codes)
      : region_(region),
        bytes_(bytes),
        head_(head),
        lost_codes_(lost_codes),
        index_(std::bit_ceil(bytes / kSmallestEntry + 2)),
        groups_(2 * kMostGroups),
        runs_(kMostRuns) {}

  // Counts a code object without room.
  std::uint32_t add_code(const CodeFacts& code) noexcept {
    const std::lock_guard lock(mutex_);
    const bool is_own = code.level == static_cast<std::uint32_t>(Level::kLines);
    const std::uint32_t id =
        add_code_entry(code, only_for_groups(bytes_) + (is_own ? 0 : only_for_own_code(bytes_)));
    if (id == 0) lost_codes_.fetch_add(1, std::memory_order_relaxed);
    return id;
  }
  // Notes in the code objects' entries the changes that last.
  void note_levels(std::span<const LevelChange> changes, std::uint64_t tsc) noexcept {
    if (std::ranges::none_of(changes, &LevelChange::lasting)) return;
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at < used_;) {
      auto* head = reinterpret_cast<EntryHead*>(region_ + at);
      at += head->size.load(std::memory_order_relaxed);
      if (head->kind != static_cast<std::uint32_t>(EntryKind::kCode)) continue;
      for (const LevelChange& change : changes) {
        if (change.code != head->id || !change.lasting) continue;
        head->now.store(LevelNow::of(change.level, tsc).bits, std::memory_order_relaxed);
      }
    }
  }
  // Returns the id of a code object named "?", shared by all that add_code() has no room for.
  std::uint32_t lost_code() noexcept {
    const std::lock_guard lock(mutex_);
    return add_code_entry({.name = "?", .file = {}, .linetable = {}}, 0);
  }
  std::uint32_t group(const GroupFacts& group) noexcept {
    const std::uint64_t hash = hash_of(group);
    const std::lock_guard lock(mutex_);
    const std::size_t mask = groups_.size() - 1;
    std::size_t at = hash & mask;
    for (; groups_[at].id != 0; at = (at + 1) & mask) {
      if (groups_[at].hash == hash) return groups_[at].id == kNoRoom ? 0 : groups_[at].id;
    }
    const std::uint32_t id = add_group(group);
    if (known_groups_ == kMostGroups) return id;
    ++known_groups_;
    groups_[at] = {hash, id == 0 ? kNoRoom : id};
    return id;
  }
  std::uint32_t operation(std::string_view name) noexcept {
    const std::lock_guard lock(mutex_);
    return add(EntryKind::kOperation, {name.substr(0, kLongestName)}, 0);
  }

 private:
  static constexpr std::size_t kLongestTable = 64 << 10;
  // Bytes of the dictionary that code entries leave free: groups and operations of a hang must
  // still fit. Ranks of groups leave kForNames free: a group without ranks is better than none.
  static constexpr std::size_t only_for_groups(std::size_t bytes) noexcept {
    return std::max<std::size_t>(4096, bytes / 16);
  }
  static constexpr std::size_t kForNames = 1024;
  // Bytes that code of frameworks leaves free, too: the program's own must still fit.
  static constexpr std::size_t only_for_own_code(std::size_t bytes) noexcept { return bytes / 4; }
  static constexpr std::size_t kSmallestEntry = sizeof(EntryHead) + 8;

  // The parts of an entry after its head.
  using Payload = std::array<std::string_view, 5>;
  static constexpr std::size_t kMostHashed = 64;
  static constexpr std::size_t kMostGroups = 1024;  // a power of two; later ones are slower
  static constexpr std::uint32_t kNoRoom = 0xFFFFFFFF;
  struct KnownGroup {
    std::uint64_t hash;
    std::uint32_t id;  // free if 0; kNoRoom: the group has no entry
  };

  static std::uint64_t hash_of(const GroupFacts& group) noexcept {
    // A sum, in which each word is mixed with its place: a processor does many at a time.
    std::uint64_t sum = group.is_whole_job ? 1 : 0;
    std::uint64_t place = 0;
    const auto add = [&](std::uint64_t word) { sum += mix_bits(word + (place += kMixStep)); };
    add(std::uint64_t{group.size} << 32 | group.own);
    add(std::hash<std::string_view>()(group.name));
    add(std::hash<std::string_view>()(group.backend));
    const std::size_t step = group.ranks.size() / kMostHashed + 1;
    for (std::size_t i = 0; i < group.ranks.size(); i += step) add(group.ranks[i]);
    return mix_bits(sum);
  }
  // Writes the ranks to runs_; returns their number, 0 if they are unknown or have no room.
  std::uint32_t find_runs(const GroupFacts& group) noexcept {
    if (group.size == 0 || group.size > kMostRanks) return 0;
    if (group.ranks.empty()) {
      runs_[0] = {0, 1, group.size};
      return group.is_whole_job ? 1 : 0;
    }
    if (group.ranks.size() != group.size) return 0;
    std::uint32_t runs = 0;
    for (const std::uint64_t wide : group.ranks) {
      if (wide >= kMostRanks) return 0;
      const auto rank = static_cast<std::uint32_t>(wide);
      if (runs > 0) {
        RankRun& run = runs_[runs - 1];
        const std::uint32_t last = run.first + run.step * (run.count - 1);
        if (run.count == 1 && rank > last) run.step = rank - last;
        if (rank > last && rank - last == run.step) {
          ++run.count;
          continue;
        }
      }
      if (runs == kMostRuns) return 0;
      runs_[runs++] = {rank, 1, 1};
    }
    return runs;
  }
  // Leaves the ranks out if only then it has room.
  std::uint32_t add_group(const GroupFacts& group) noexcept {
    const std::string_view name = group.name.substr(0, kLongestName);
    const std::string_view backend = group.backend.substr(0, kLongestName);
    const std::string_view text = group.text.substr(0, kLongestName);
    const std::uint32_t size = group.size <= kMostRanks ? group.size : 0;
    GroupEntry entry{size, group.own, find_runs(group), static_cast<std::uint32_t>(name.size()),
                     static_cast<std::uint32_t>(backend.size())};
    if (entry.runs > 0) {
      const std::string_view runs(reinterpret_cast<const char*>(runs_.data()),
                                  entry.runs * sizeof(RankRun));
      const std::uint32_t id =
          add(EntryKind::kGroup, {bytes_of(entry), runs, name, backend, text}, kForNames);
      if (id != 0) return id;
      entry.runs = 0;
    }
    return add(EntryKind::kGroup, {bytes_of(entry), {}, name, backend, text}, 0);
  }

  // Returns the entry's id. Appends a new entry if that leaves `reserve` bytes free, else returns
  // 0. Call it with the lock held.
  std::uint32_t add(EntryKind kind, const Payload& payload, std::size_t reserve) noexcept {
    std::size_t bytes = 0;
    std::uint32_t crc = 0;
    for (const std::string_view part : payload) {
      bytes += part.size();
      crc = crc32(part.data(), part.size(), crc);
    }
    std::uint32_t* const indexed = find(kind, payload, bytes, crc);
    if (*indexed != 0) {
      return reinterpret_cast<const EntryHead*>(region_ + (std::size_t{*indexed} - 1) * 8)->id;
    }
    const std::size_t size = (sizeof(EntryHead) + bytes + 7) / 8 * 8;
    if (bytes_ - used_ < size + reserve) return 0;
    char* at = region_ + used_ + sizeof(EntryHead);
    for (const std::string_view part : payload) at = std::copy(part.begin(), part.end(), at);
    auto* head = reinterpret_cast<EntryHead*>(region_ + used_);
    head->crc = crc;
    head->kind = static_cast<std::uint32_t>(kind);
    head->id = ++last_ids_[static_cast<std::size_t>(kind)];
    head->bytes = static_cast<std::uint32_t>(bytes);
    head->size.store(size, std::memory_order_release);
    *indexed = static_cast<std::uint32_t>(used_ / 8 + 1);
    used_ += size;
    head_.store(used_, std::memory_order_release);
    return head->id;
  }
  std::uint32_t add_code_entry(const CodeFacts& code, std::size_t reserve) noexcept {
    const std::uint32_t file =
        code.file.empty() ? 0 : add(EntryKind::kText, {code.file.substr(0, kLongestName)}, reserve);
    // Too long a line table is left out; the entry keeps its name.
    const std::string_view linetable =
        code.linetable.size() <= kLongestTable ? code.linetable : std::string_view();
    const CodeEntry entry{code.first_line, code.level, static_cast<std::uint32_t>(linetable.size()),
                          file};
    return add(EntryKind::kCode, {bytes_of(entry), linetable, code.name.substr(0, kLongestName)},
               reserve);
  }
  // Returns the slot of `index_` with this entry, or the free one where it belongs.
  std::uint32_t* find(EntryKind kind, const Payload& payload, std::size_t bytes,
                      std::uint32_t crc) noexcept {
    const std::size_t mask = index_.size() - 1;
    for (std::size_t at = crc & mask;; at = (at + 1) & mask) {
      if (index_[at] == 0) return &index_[at];
      const char* entry = region_ + (std::size_t{index_[at]} - 1) * 8;
      const auto* head = reinterpret_cast<const EntryHead*>(entry);
      if (head->crc != crc || head->bytes != bytes ||
          head->kind != static_cast<std::uint32_t>(kind)) {
        continue;
      }
      const char* known = entry + sizeof(EntryHead);
      bool same = true;
      for (const std::string_view part : payload) {
        same = same && std::equal(part.begin(), part.end(), known);
        known += part.size();
      }
      if (same) return &index_[at];
    }
  }

  char* region_;
  std::size_t bytes_;
  Word& head_;
  Word& lost_codes_;
  std::mutex mutex_;  // guards all below
  std::size_t used_ = 0;
  std::array<std::uint32_t, 5> last_ids_{};  // by kind
  // Hash table of entries by CRC. A slot holds the entry's offset / 8 + 1; 0: free. Never full.
  std::vector<std::uint32_t> index_;
  std::vector<KnownGroup> groups_;  // hash table; half of it stays free
  std::size_t known_groups_ = 0;
  std::vector<RankRun> runs_;  // of the group being added
};

class Recorder;

// One thread's writer. Only its thread writes, and the sampler while it has the GIL. Nothing in it
// allocates, locks, calls libc or throws, except give_notice().
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

  // Notes when positions of Kind::kSampled in the stack were read.
  void note_sample(std::uint64_t tsc) noexcept {
    slot_->sampled.store(tsc, std::memory_order_relaxed);
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
  // Notes that events are missing from here on. After a gap there is nothing new to say.
  void note_gap() noexcept {
    const Place last{ring_[(head_ - 1) & mask_].place.load(std::memory_order_relaxed)};
    if (head_ == 0 || last.kind() != Kind::kGap) append(Place::of(0, kNoPosition, Kind::kGap));
  }
  ThreadSlot& slot() noexcept { return *slot_; }

 private:
  friend class Recorder;
  explicit ThreadRecorder(Recorder& recorder) noexcept : recorder_(&recorder) {}
  // Gives it its slot, which is filled in, and its ring; nullptr: it has none.
  void begin(ThreadSlot& slot, Event* ring) noexcept;
  void publish_depth() noexcept {
    slot_->changes.store(++changes_, std::memory_order_relaxed);
    slot_->depth.store(depth_, std::memory_order_release);
  }
  void give_notice() noexcept;

  Recorder* recorder_;
  ThreadSlot* slot_ = nullptr;
  Event* ring_ = &spare_;  // in the file, unless this thread has no ring there
  std::uint64_t mask_ = 0;
  // A mask: give_notice() every half ring, and at least every kClockEvery events.
  std::uint64_t notice_ = kClockEvery - 1;
  std::uint64_t head_ = 0;
  std::uint64_t depth_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t room_ = 0;
  Event spare_{};
};

// 64-byte slots that any thread claims with fetch_add. If a slot is overwritten while a reader
// copies it, its commit word differs afterwards. If its writer died in the middle, the commit word
// is 0 or still the old one.
class MarkRing {
 public:
  MarkRing(char* map, Header& header) noexcept
      : slots_(reinterpret_cast<MarkSlot*>(map + header.marks.offset)),
        mask_(header.marks.count - 1),
        claimed_(header.marks_claimed) {}

  void add(MarkKind kind, std::uint64_t value, std::string_view text, std::uint32_t tid) noexcept {
    const std::uint64_t number = write(kind, value, text, tid, read_tsc());
    if ((number & (mask_ / 2)) == 0) [[unlikely]]
      write_open_sections();
  }
  // `number` identifies the section; no other section of this process ever has it.
  void begin_section(std::uint64_t number, std::string_view name, std::uint32_t tid) noexcept;
  void end_section(std::uint64_t number, std::string_view name, std::uint32_t tid) noexcept;
  // Call it when ends will not be recorded: the open sections then go with their marks.
  void forget_open_sections() noexcept;

 private:
  // A section that has begun and not ended.
  struct OpenSection {
    std::uint64_t number;  // free if 0
    std::uint64_t tsc;
    std::uint32_t tid;
    std::uint32_t size;
    char name[sizeof(MarkSlot::text)];
  };
  static constexpr std::size_t kMostOpen = 64;

  // Writes the begins of open sections again, twice per turn of the ring: later marks would
  // overwrite them.
  void write_open_sections() noexcept;
  OpenSection* find_open(std::uint64_t number) noexcept;
  std::uint64_t write(MarkKind kind, std::uint64_t value, std::string_view text, std::uint32_t tid,
                      std::uint64_t tsc) noexcept {
    const std::uint64_t number = claimed_.fetch_add(1, std::memory_order_relaxed);
    MarkSlot& slot = slots_[number & mask_];
    // Invalidate the old mark before overwriting it.
    slot.commit.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    pack(slot, kind, value, text, tid, tsc);
    slot.commit.store(number + 1, std::memory_order_release);
    return number;
  }

  MarkSlot* slots_;
  std::uint64_t mask_;
  Word& claimed_;
  std::mutex mutex_;  // guards open_
  // At most an eighth of the ring is in use. Sections beyond it go with their marks.
  std::array<OpenSection, kMostOpen> open_{};
};

// Numbers messages per group and partner, sends and receives apart: the k-th send from A to B and
// the k-th receive at B get the same number, even inside a batch. Thread-safe; allocates only in
// its constructor.
class PairCounts {
 public:
  PairCounts() : slots_(kMostPairs) {}

  // Returns the number of the next one, from 1. kNoSequence: unknown, of a receive after one from
  // any rank in its group, of a group without an id, or without room.
  std::uint64_t next(std::uint32_t group, std::uint32_t partner, Role role) noexcept;

 private:
  static constexpr std::size_t kMostPairs = 2048;  // a power of two
  // Slots that a key may be in: looking through a full table would take microseconds.
  static constexpr std::size_t kMostTried = 16;
  struct Slot {
    Word key{0};  // free if 0
    Word count{0};
  };
  Slot* find(std::uint64_t key, bool add) noexcept;
  std::vector<Slot> slots_;
  std::atomic<bool> receives_unknown_{false};  // of all groups
};

// Numbers collectives of back ends that count sends and receives along with them: these differ from
// rank to rank. If a back end counted operations while the recorder was off, they count as
// collectives, so that ranks stay aligned. Thread-safe; allocates only in its constructor.
class GroupCounts {
 public:
  GroupCounts() : groups_(kMostGroups) {}

  // `count`: the back end's before the operation.
  void begin(std::uint32_t group, std::uint64_t count) noexcept;
  // `count`: the back end's after it. Returns the number of a collective that was issued, from 1;
  // else, and without room, kNoSequence.
  std::uint64_t end(std::uint32_t group, std::uint64_t count, bool is_issued) noexcept;

 private:
  static constexpr std::size_t kMostGroups = 1024;
  struct Group {
    std::uint64_t last = 0;       // the number of the last collective
    std::uint64_t count = 0;      // the back end's, of operations that are recorded or in `last`
    std::uint32_t under_way = 0;  // operations begun and not ended; `count` may not have them yet
  };
  std::mutex mutex_;
  std::vector<Group> groups_;  // by id - 1
};

// The history of collectives, a table of the open ones, and how far each group has come: later
// collectives cannot push out one that hangs, or a group that is seldom used.
class CollectiveRing {
 public:
  CollectiveRing(char* map, Header& header)
      : header_(header),
        slots_(reinterpret_cast<CollectiveSlot*>(map + header.collectives.offset)),
        timed_(reinterpret_cast<CollectiveSlot*>(map + header.timed.offset)),
        open_(reinterpret_cast<CollectiveSlot*>(map + header.open.offset), header.open.count),
        groups_(reinterpret_cast<GroupSlot*>(map + header.groups.offset), header.groups.count) {}

  // Returns the collective's number, from 1, which the other functions take. Numbers a send or
  // recv in its sequence. `count`: see CollectiveCall.
  std::uint64_t begin(CollectiveFacts facts, std::uint64_t count = kNoCount) noexcept;
  // Sets the sequence number, known once the collective is issued: the open slot and the end show
  // it, the begin does not. Call it before close().
  void numbered(std::uint64_t number, std::uint64_t sequence) noexcept;
  // Call it instead, of send and recv too, if begin() had a count: `count` is the new one.
  void counted(std::uint64_t number, std::uint32_t group, std::uint64_t count,
               bool is_issued) noexcept;
  // Records how it ended, or that this will not be known (kIssued). Call it once per number, from
  // any thread.
  void close(std::uint64_t number, Phase phase = Phase::kEnd) noexcept;
  // Records how long a call of another thread or moment took on its device. Times: nanoseconds.
  void note_timed(const CollectiveFacts& facts, std::uint64_t begin, std::uint64_t time) noexcept;

 private:
  CollectiveSlot* find_open(std::uint64_t number) noexcept;
  // Returns null for send and recv, and a group without a slot.
  GroupSlot* group_of(std::uint32_t id, Role role) noexcept;
  void note_begin(std::uint32_t group) noexcept;

  Header& header_;
  CollectiveSlot* slots_;
  CollectiveSlot* timed_;
  std::span<CollectiveSlot> open_;
  std::span<GroupSlot> groups_;
  PairCounts pairs_;
  GroupCounts counts_;
  Word last_number_{0};
};

struct CollectiveCall;
struct CollectiveSink;

// Made once per process and leaked on purpose, with its mapping: threads may write until the end.
// A forked child must not touch its parent's recorder; it makes its own.
class Recorder {
 public:
  // `file` must be empty, with `bytes` reserved on disk (see make_record_file()). Throws
  // SystemError if it cannot be mapped. Finds out pids, start and boot of the process itself.
  Recorder(const Fd& file, std::size_t bytes, const Process& process);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();

  // Returns the calling thread's writer; nullptr if all slots are taken (counted). The first thread
  // gets the large ring; later ones get one block, or only a stack if no block is left.
  ThreadRecorder* add_thread(std::uint64_t python_id, std::uint32_t tid, std::string_view name);
  // Sets the name of a thread that had none when it began.
  void name_thread(ThreadRecorder& thread, std::string_view name) noexcept;
  // Destroys the writer of a thread that ends. Its slot stays readable until another thread needs
  // it.
  void end_thread(ThreadRecorder& thread) noexcept;

  DictionaryWriter& dictionary() noexcept { return dictionary_; }
  MarkRing& marks() noexcept { return marks_; }
  CollectiveRing& collectives() noexcept { return collectives_; }

  // Returns the facts with the ids of the names.
  CollectiveFacts facts_of(const CollectiveCall& call) noexcept;

  // oddrank.step(i).
  void step(std::uint64_t number, std::uint32_t tid) noexcept {
    header_->step.store(number + 1, std::memory_order_relaxed);
    marks_.add(MarkKind::kStep, number, {}, tid);
  }
  void set_hook_state(HookState state, std::string_view displaced_by = {}) noexcept;
  // Notes the exception ("": none) that ended a thread or, has_ended, the script. The script's
  // takes the place of a thread's; among the threads' exceptions the first counts, before the
  // script's end.
  void note_raised(std::string_view raised, std::string_view message, std::string_view at,
                   bool has_ended) noexcept;
  // Notes that exit(code) was called.
  void note_exit(int code) noexcept;
  // Notes that collectives are recorded from now on: one that is not in the file was not issued.
  void note_collectives() noexcept;
  // Notes since when the sampling thread waits for the GIL; 0: it does not wait.
  void note_gil_wanted(std::uint64_t tsc) noexcept {
    header_->gil_wanted.store(tsc, std::memory_order_relaxed);
  }
  // Notes since when no code gives events; 0: it does.
  void note_rest(std::uint64_t tsc) noexcept {
    header_->sampled_since.store(tsc, std::memory_order_relaxed);
  }
  // Writes a new ClockPair. Returns at once if another thread is doing it.
  void refresh_clock() noexcept;
  // Called by a thread at least after every half of its ring, so that events can be read before
  // they are overwritten. may_wait is false if the call must not block. Set and called with the
  // GIL.
  using Listener = void (*)(bool may_wait) noexcept;
  static inline Listener listener = nullptr;
  const Header& header() const noexcept { return *header_; }
  // The whole file; valid as long as the process lives.
  std::span<const unsigned char> memory() const noexcept {
    return {reinterpret_cast<const unsigned char*>(map_), header_->size};
  }

 private:
  Event* take_blocks(std::uint32_t blocks) noexcept;

  char* map_;
  Header* header_;
  DictionaryWriter dictionary_;
  MarkRing marks_;
  CollectiveRing collectives_;
  std::atomic<std::uint32_t> clock_turn_{0};
  std::atomic<bool> clock_busy_{false};
  std::mutex mutex_;  // guards all below
  std::uint32_t next_slot_ = 0;
  std::vector<ThreadSlot*> ended_;
  std::vector<std::unique_ptr<ThreadRecorder>> pens_;  // of live threads
};

// Returns the sink that writes into this process's record file; for _core. `current` returns the
// recorder to use, or nullptr: not armed, stopped, or in a child just after fork. It is called from
// any thread; its recorders must never be destroyed.
const CollectiveSink& recording_sink(Recorder* (*current)() noexcept) noexcept;

}  // namespace oddrank::trace
