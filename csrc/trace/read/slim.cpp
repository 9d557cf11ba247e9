// Reads the parts of a record with its checked readers and writes the parts that are kept.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/read/records.hpp"
#include "trace/read/snapshot.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {
namespace {

constexpr std::uint64_t kMostCollectives = 128;
constexpr std::uint64_t kMostTimed = 256;
constexpr std::size_t kMostOpen = 256;
constexpr std::size_t kMostMarks = 32;
constexpr std::size_t kMostSections = 64;
constexpr std::uint32_t kMostGroups = 512;
constexpr std::size_t kMostThreads = 256;
constexpr std::uint64_t kEventsOfMain = 7, kEventsOfGoneMain = 127;
constexpr std::size_t kStackBytes = std::size_t{80} << 10;  // slots of threads with their stacks
constexpr std::size_t kDictionaryBytes = std::size_t{96} << 10;
static_assert(kPage + kDictionaryBytes + kStackBytes + kMostGroups * sizeof(GroupSlot) +
                  (kMostOpen + kMostCollectives + kMostTimed) * sizeof(CollectiveSlot) +
                  (kMostMarks + kMostSections + 1) * sizeof(MarkSlot) +
                  (2 * (kEventsOfGoneMain + 1) + 2 * kMostThreads) * sizeof(Event) <=
              kLargestSlim);

struct KeptThread {
  Thread thread;
  Events events;
};

std::vector<KeptThread> threads_of(const RecordFile& file,
                                   const std::vector<CollectiveRecord>& open) {
  std::set<std::uint32_t> issuers;
  for (const CollectiveRecord& one : open) issuers.insert(one.tid);
  std::vector<KeptThread> kept;
  bool has_main = false;
  for (Thread& thread : read_threads(file).list) {
    const bool is_main = thread.tid == file.process().pid;
    // The first one has armed the process: its last events tell whether a training is over.
    const bool has_trained = is_main || thread.slot == 0;
    const bool is_told = has_trained || issuers.contains(thread.tid);
    if (thread.state != ThreadState::kLive && !is_told) continue;
    if (kept.size() + (has_main || is_main ? 0 : 1) >= kMostThreads) continue;
    has_main = has_main || is_main;
    const std::uint64_t last = thread.stack.empty() ? kEventsOfGoneMain : kEventsOfMain;
    Events events =
        has_trained ? read_events(file, thread.slot, last) : read_last_event(file, thread.slot);
    if (events.generation != thread.generation || thread.capacity == 0) events = {};
    kept.push_back({std::move(thread), std::move(events)});
  }
  return kept;
}

// Keeps the last marks, the begins of open sections and the last step.
std::vector<Mark> marks_of(const RecordFile& file) {
  std::vector<Mark> all = read_marks(file).list;
  const std::size_t old = all.size() - std::min(all.size(), kMostMarks);
  std::set<std::uint64_t> ended;
  for (const Mark& mark : all) {
    if (mark.kind == MarkKind::kSectionEnd) ended.insert(mark.value);
  }
  std::size_t sections = 0;
  bool has_step = false;
  std::vector<Mark> kept;
  for (std::size_t i = all.size(); i-- > 0;) {  // the last ones first
    Mark& mark = all[i];
    bool keep = i >= old;
    if (mark.kind == MarkKind::kStep) keep = keep || !std::exchange(has_step, true);
    if (!keep && mark.kind == MarkKind::kSectionBegin && !ended.contains(mark.value)) {
      keep = ++sections <= kMostSections;
    }
    if (keep) kept.push_back(std::move(mark));
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

// The entries in use, with their ids. Leaves out entries without room.
class SlimDictionary {
 public:
  explicit SlimDictionary(const Dictionary& from) : from_(from) {}

  void add_operation(std::uint32_t id) { add(EntryKind::kOperation, id, {from_.operation(id)}); }
  void add_group(std::uint32_t id) {
    const ProcessGroup* group = from_.group(id);
    if (group == nullptr) return;
    const GroupEntry entry{group->size, group->own, static_cast<std::uint32_t>(group->runs.size()),
                           static_cast<std::uint32_t>(group->name.size()),
                           static_cast<std::uint32_t>(group->backend.size())};
    const std::string_view runs(reinterpret_cast<const char*>(group->runs.data()),
                                group->runs.size_bytes());
    add(EntryKind::kGroup, id, {bytes_of(entry), runs, group->name, group->backend, group->text});
  }
  void add_code(std::uint32_t id) {
    const Code* code = from_.code(id);
    if (code == nullptr) return;
    if (!code->file.empty()) add(EntryKind::kText, code->file_id, {code->file});
    const CodeEntry entry{code->first_line, code->level, 0, code->file_id};
    add(EntryKind::kCode, id, {bytes_of(entry), code->qualified_name}, code->now);
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void add(EntryKind kind, std::uint32_t id, std::initializer_list<std::string_view> parts,
           LevelNow now = {}) {
    if (id == 0 || !known_.emplace(kind, id).second) return;
    std::string rest;
    for (const std::string_view part : parts) rest.append(part);
    const std::size_t size = (sizeof(EntryHead) + rest.size() + 7) / 8 * 8;
    if (bytes_.size() + size > kDictionaryBytes) return;
    EntryHead head{};
    head.size = size;
    head.crc = crc32(rest.data(), rest.size());
    head.kind = static_cast<std::uint32_t>(kind);
    head.id = id;
    head.bytes = static_cast<std::uint32_t>(rest.size());
    head.now = now.bits;
    const std::size_t end = bytes_.size() + size;
    bytes_.append(bytes_of(head)).append(rest).resize(end);
  }

  const Dictionary& from_;
  std::set<std::pair<EntryKind, std::uint32_t>> known_;
  std::string bytes_;
};

// The same place without a bytecode offset, so that its line needs no line table.
Place with_line(Names& names, Place place) {
  const Code* code = names.dictionary().code(place.code());
  if (!place.is_offset() || code == nullptr) return place;
  return Place::of(place.code(), names.line(*code, place).value_or(kNoPosition), place.kind());
}

// The least power of two whose ring gives back all these events; 0 if there are none. A ring that
// has been full gives back one event less than it holds.
std::uint32_t ring_of(const Events& events) noexcept {
  const std::uint64_t count = events.list.size();
  if (count == 0) return 0;
  const std::uint64_t room =
      events.first == 0 ? std::bit_ceil(count + 1) : std::bit_floor(count + 1);
  return static_cast<std::uint32_t>(room);
}

// Lays out the parts one after the other and fills them in.
class SlimFile {
 public:
  Region place(std::size_t count, std::size_t stride) {
    if (count == 0) return {};
    const Region region{size_, static_cast<std::uint32_t>(count),
                        static_cast<std::uint32_t>(stride)};
    size_ += (region.bytes() + 7) / 8 * 8;
    return region;
  }
  // Call it after all place(), before at().
  void make() {
    size_ = std::max<std::uint64_t>(size_, kPage);
    words_.assign(size_ / sizeof(Word), 0);
  }
  std::uint64_t size() const noexcept { return size_; }
  char* bytes(std::uint64_t offset) noexcept {
    return reinterpret_cast<char*>(words_.data()) + offset;
  }
  template <class T>
  T& at(const Region& region, std::uint64_t i) noexcept {
    return *reinterpret_cast<T*>(bytes(region.offset + i * region.stride));
  }
  std::string text() const { return {reinterpret_cast<const char*>(words_.data()), size_}; }

 private:
  std::uint64_t size_ = sizeof(Header);
  std::vector<std::uint64_t> words_;
};

// Frames between the first ones and the innermost have no room.
void fill(ThreadSlot& slot, const Thread& from, std::uint64_t room, Names& names) {
  const std::uint64_t shown = std::min<std::uint64_t>(from.stack.size(), room);
  for (std::uint64_t i = 0; i < shown; ++i) {
    const std::uint64_t frame = i + 1 == shown ? from.stack.size() - 1 : i;
    slot.stack()[i] = with_line(names, from.stack[frame]).bits;
  }
  slot.depth = from.depth;
  slot.sampled = from.sampled;
  slot.python_id = from.python_id;
  slot.tid = from.tid;
  slot.stack_room =
      static_cast<std::uint32_t>(from.depth > shown ? std::max<std::uint64_t>(shown, 1) : room);
  set_text(slot.name, from.name);
  slot.state = static_cast<std::uint64_t>(from.state) | std::uint64_t{from.generation} << 32;
}

// The first and the last reading of the clocks: a reader uses no others.
void fill(ClockPair (&pairs)[kClockPairs], std::vector<ClockPicture> pictures) {
  std::ranges::sort(pictures, {}, &ClockPicture::tsc);
  if (pictures.size() > 2) pictures.erase(pictures.begin() + 1, pictures.end() - 1);
  for (std::size_t i = 0; i < kClockPairs; ++i) {
    const bool known = i < pictures.size();
    pairs[i].tsc = known ? pictures[i].tsc : 0;
    pairs[i].monotonic_ns = known ? pictures[i].monotonic_ns : 0;
    pairs[i].realtime_ns = known ? pictures[i].realtime_ns : 0;
    pairs[i].number = known ? 2 : 0;
  }
}

}  // namespace

std::string slim_record(const RecordFile& file) {
  std::vector<std::uint64_t> raw = file.words(0, sizeof(Header));
  std::vector<CollectiveRecord> open = read_open_collectives(file);
  if (open.size() > kMostOpen) open.resize(kMostOpen);
  const std::vector<KeptThread> threads = threads_of(file, open);
  const Records<CollectiveRecord> ring = read_collectives(file);
  std::vector<Collective> timed = read_timed(file);
  if (timed.size() > kMostTimed) timed.erase(timed.begin(), timed.end() - kMostTimed);
  const std::vector<Mark> marks = marks_of(file);
  const std::vector<GroupProgress> progress = read_progress(file);
  Names names(file);  // last: it has every id

  std::uint64_t room = 1;
  std::uint64_t events = 0;
  for (const KeptThread& one : threads) {
    room = std::max<std::uint64_t>(room, one.thread.stack.size());
    events += ring_of(one.events);
  }
  if (!threads.empty()) {
    room = std::min(room, (kStackBytes / threads.size() - sizeof(ThreadSlot)) / sizeof(Word));
  }
  std::uint32_t groups = 0;
  std::uint64_t lost_groups = 0;
  for (const GroupProgress& group : progress) {
    if (group.group <= kMostGroups) groups = std::max(groups, group.group);
    lost_groups += group.group <= kMostGroups ? 0 : 1;
  }
  const std::uint64_t kept =
      std::min<std::uint64_t>({ring.claimed, kMostCollectives, file.layout().collectives.count});
  const std::uint64_t oldest = ring.claimed - kept;

  SlimDictionary dictionary(names.dictionary());
  for (const GroupProgress& group : progress) dictionary.add_group(group.group);
  const auto name = [&dictionary](const CollectiveFacts& one) {
    dictionary.add_group(one.group);
    dictionary.add_operation(one.operation);
  };
  std::for_each(open.begin(), open.end(), name);
  std::for_each(timed.begin(), timed.end(), name);
  for (const CollectiveRecord& one : ring.list) {
    if (one.claim >= oldest) name(one);
  }
  // The main thread's innermost frames first: they must have their names.
  const auto name_stack = [&dictionary](const Thread& thread) {
    for (std::size_t i = thread.stack.size(); i-- > 0;) {
      dictionary.add_code(thread.stack[i].code());
    }
  };
  for (const KeptThread& one : threads) {
    if (one.thread.tid == file.process().pid) name_stack(one.thread);
  }
  for (const KeptThread& one : threads) name_stack(one.thread);
  for (const KeptThread& one : threads) {
    for (const Moment& moment : one.events.list) dictionary.add_code(moment.place.code());
  }
  for (const Code& code : names.dictionary().codes()) {
    if (code.is_lowered()) dictionary.add_code(code.id);
  }

  SlimFile made;
  auto& header = *reinterpret_cast<Header*>(raw.data());
  header.dictionary = made.place(dictionary.bytes().size(), 1);
  header.threads = made.place(threads.size(), sizeof(ThreadSlot) + room * sizeof(Word));
  header.open = made.place(open.size(), sizeof(CollectiveSlot));
  header.groups = made.place(groups, sizeof(GroupSlot));
  header.marks = made.place(marks.size(), sizeof(MarkSlot));
  header.collectives = made.place(kept, sizeof(CollectiveSlot));
  header.timed = made.place(timed.size(), sizeof(CollectiveSlot));
  header.rings = made.place(events, sizeof(Event));
  made.make();
  header.size = made.size();
  header.timed_claimed = timed.size();
  header.dictionary_head = header.dictionary.bytes();
  header.blocks_taken = 0;
  header.marks_claimed = marks.size();
  header.collectives_claimed = ring.claimed;
  header.lost_groups = value_of(header.lost_groups) + lost_groups;
  fill(header.clocks, clock_pictures(file));
  std::memcpy(made.bytes(0), raw.data(), sizeof(Header));

  std::memcpy(made.bytes(header.dictionary.offset), dictionary.bytes().data(),
              dictionary.bytes().size());
  std::uint64_t next = 0;  // free event in the rings
  for (std::size_t i = 0; i < threads.size(); ++i) {
    auto& slot = made.at<ThreadSlot>(header.threads, i);
    fill(slot, threads[i].thread, room, names);
    const Events& last = threads[i].events;
    slot.head = last.list.empty() ? threads[i].thread.events : last.first + last.list.size();
    slot.ring_events = ring_of(last);
    slot.ring_offset = slot.ring_events == 0 ? 0 : header.rings.offset + next * sizeof(Event);
    for (std::size_t event = 0; event < last.list.size(); ++event) {
      const std::uint64_t at = (last.first + event) & (slot.ring_events - 1);  // a power of two
      auto& to = made.at<Event>(header.rings, next + at);
      to.tsc = last.list[event].tsc;
      to.place = with_line(names, last.list[event].place).bits;
    }
    next += slot.ring_events;
  }
  for (std::size_t i = 0; i < open.size(); ++i) {
    auto& slot = made.at<CollectiveSlot>(header.open, i);
    pack(slot, open[i], open[i].number, open[i].phase, open[i].tsc);
    slot.commit = open[i].number;
  }
  for (const CollectiveRecord& one : ring.list) {
    if (one.claim < oldest) continue;
    auto& slot = made.at<CollectiveSlot>(header.collectives, one.claim % kept);
    pack(slot, one, one.number, one.phase, one.tsc);
    slot.commit = one.claim + 1;
  }
  for (std::size_t i = 0; i < timed.size(); ++i) {
    auto& slot = made.at<CollectiveSlot>(header.timed, i);
    pack(slot, timed[i], *timed[i].begin, Phase::kEnd, *timed[i].end - *timed[i].begin);
    slot.commit = i + 1;
  }
  for (std::size_t i = 0; i < marks.size(); ++i) {
    auto& slot = made.at<MarkSlot>(header.marks, i);
    const Mark& mark = marks[i];
    pack(slot, mark.kind, mark.value, mark.text, mark.tid, mark.tsc);
    slot.commit = i + 1;
  }
  for (const GroupProgress& group : progress) {
    if (group.group > kMostGroups) continue;
    auto& slot = made.at<GroupSlot>(header.groups, group.group - 1);
    slot.begun = group.begun;
    slot.issued = group.issued;
    slot.ended = group.ended;
    slot.last = group.last;
  }
  return made.text();
}

}  // namespace oddrank::trace
