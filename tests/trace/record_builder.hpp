// Makes record files by hand, good and bad ones, without the recorder.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "os/error.hpp"
#include "trace/format/format.hpp"
#include "trace/read/file.hpp"

namespace oddrank::trace {

struct RecordSizes {
  std::uint32_t dictionary = 4096;
  std::uint32_t threads = 4;
  std::uint32_t stack_room = 8;
  std::uint32_t ring_events = 16;  // per thread
  std::uint32_t marks = 8;
  std::uint32_t collectives = 8;
  std::uint32_t open = 4;
  std::uint32_t groups = 4;
  std::uint32_t timed = 4;
};

// A memory file with a whole record, mapped: readers see changes at once.
class RecordBuilder {
 public:
  explicit RecordBuilder(const RecordSizes& sizes = {}) : sizes_(sizes) {
    Header layout{};
    size_ = share_out(layout);
    fd_.reset(::memfd_create("oddrank-record", MFD_CLOEXEC));
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) throw_errno("ftruncate");
    base_ = static_cast<char*>(
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    if (base_ == MAP_FAILED) throw_errno("mmap");
    auto* made = new (base_) Header{};
    share_out(*made);
    std::memcpy(made->magic, kMagic, sizeof kMagic);
    made->version = kVersion;
    made->endian = kEndian;
    made->size = size_;
    made->process.pid = 4711;
    made->process.rank = 3;
    made->process.world = 8;
    set_text(made->host, "node1");
    set_text(made->hook, "monitoring");
    set_text(made->arguments, "train.py --lr 1");
  }
  RecordBuilder(const RecordBuilder&) = delete;
  RecordBuilder& operator=(const RecordBuilder&) = delete;
  ~RecordBuilder() { ::munmap(base_, size_); }

  std::uint64_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  Header& header() { return *at<Header>(0); }
  std::string_view bytes() const { return {base_, size_}; }
  RecordFile open() const { return RecordFile(Fd(::dup(fd_.get())), "of the test"); }
  template <class T>
  T* at(std::uint64_t offset) {
    return reinterpret_cast<T*>(base_ + offset);
  }

  void save(const std::string& path) const {
    if (!(std::ofstream(path, std::ios::binary) << bytes())) throw_errno(path);
  }

  // ---- dictionary
  EntryHead& entry(EntryKind kind, std::uint32_t id, std::string_view rest) {
    Word& head = header().dictionary_head;
    auto* made = at<EntryHead>(header().dictionary.offset + head);
    std::memcpy(static_cast<void*>(made + 1), rest.data(), rest.size());
    made->crc = crc32(rest.data(), rest.size());
    made->kind = static_cast<std::uint32_t>(kind);
    made->id = id;
    made->bytes = static_cast<std::uint32_t>(rest.size());
    made->size = sizeof(EntryHead) + (rest.size() + 7) / 8 * 8;
    head += made->size;
    return *made;
  }
  EntryHead& code(std::uint32_t id, std::string_view name, std::uint32_t file,
                  std::uint32_t first_line, std::string_view linetable = {}) {
    const CodeEntry code{first_line, 2, static_cast<std::uint32_t>(linetable.size()), file};
    std::string rest(reinterpret_cast<const char*>(&code), sizeof code);
    return entry(EntryKind::kCode, id, rest.append(linetable).append(name));
  }

  EntryHead& group(std::uint32_t id, std::string_view name, std::span<const RankRun> runs,
                   std::string_view backend = "gloo") {
    GroupEntry group{0, 0, static_cast<std::uint32_t>(runs.size()),
                     static_cast<std::uint32_t>(name.size()),
                     static_cast<std::uint32_t>(backend.size())};
    for (const RankRun& run : runs) group.size += run.count;
    std::string rest(reinterpret_cast<const char*>(&group), sizeof group);
    rest.append(reinterpret_cast<const char*>(runs.data()), runs.size_bytes());
    return entry(EntryKind::kGroup, id, rest.append(name).append(backend).append("some text"));
  }

  // ---- threads
  ThreadSlot& slot(std::uint32_t i) {
    return *at<ThreadSlot>(header().threads.offset + std::uint64_t{i} * header().threads.stride);
  }
  ThreadSlot& thread(std::uint32_t i, std::string_view name, std::span<const Place> stack) {
    ThreadSlot& made = slot(i);
    made.python_id = 0x7000 + i;
    made.ring_offset = header().rings.offset + std::uint64_t{i} * header().rings.stride;
    made.ring_events = sizes_.ring_events;
    made.tid = 100 + i;
    made.stack_room = sizes_.stack_room;
    set_text(made.name, name);
    for (std::size_t frame = 0; frame < stack.size(); ++frame) {
      made.stack()[std::min<std::size_t>(frame, sizes_.stack_room - 1)] = stack[frame].bits;
    }
    made.depth = stack.size();
    made.state = static_cast<std::uint64_t>(ThreadState::kLive) | std::uint64_t{1} << 32;
    return made;
  }
  // Writes as the recorder does: the event first, then the head.
  void event(std::uint32_t i, std::uint64_t tsc, Place place) {
    ThreadSlot& of = slot(i);
    const std::uint64_t head = of.head.load(std::memory_order_relaxed);
    auto* ring = at<Event>(of.ring_offset);
    ring[head % sizes_.ring_events].tsc.store(tsc, std::memory_order_relaxed);
    ring[head % sizes_.ring_events].place.store(place.bits, std::memory_order_relaxed);
    of.head.store(head + 1, std::memory_order_release);
  }

  // ---- marks and collectives
  MarkSlot& mark(MarkKind kind, std::uint64_t value, std::string_view text) {
    const std::uint64_t claim = header().marks_claimed++;
    auto* made = at<MarkSlot>(header().marks.offset) + claim % sizes_.marks;
    made->commit = 0;
    made->tsc = 1000 + claim;
    made->value = value;
    made->who = std::uint64_t{77} << 32 | text.size() << 16 | static_cast<std::uint64_t>(kind);
    char cut[sizeof made->text] = {};
    std::memcpy(cut, text.data(), std::min(text.size(), sizeof cut));
    std::memcpy(static_cast<void*>(made->text), cut, sizeof cut);
    made->commit = claim + 1;
    return *made;
  }
  CollectiveSlot& collective(Phase phase, std::uint64_t number) {
    const std::uint64_t claim = header().collectives_claimed++;
    auto* made = at<CollectiveSlot>(header().collectives.offset) + claim % sizes_.collectives;
    fill(*made, phase, number);
    made->commit = claim + 1;
    return *made;
  }
  void timed_call(std::uint64_t begin_ns, std::uint64_t ns) {
    const std::uint64_t claim = header().timed_claimed++;
    auto* made = at<CollectiveSlot>(header().timed.offset) + claim % sizes_.timed;
    fill(*made, Phase::kEnd, begin_ns);
    made->tsc = ns;
    made->commit = claim + 1;
  }
  CollectiveSlot& open_collective(std::uint32_t i, std::uint64_t number) {
    auto* made = at<CollectiveSlot>(header().open.offset) + i;
    fill(*made, Phase::kBegin, number);
    made->commit = number;
    return *made;
  }

 private:
  // Sets the regions; returns the size of the file.
  std::uint64_t share_out(Header& header) const {
    std::uint64_t at = kPage;
    const auto place = [&at](std::uint32_t count, std::uint64_t stride) {
      const Region region{at, count, static_cast<std::uint32_t>(stride)};
      at += (region.bytes() + 7) / 8 * 8;
      return region;
    };
    const std::uint64_t slot = sizeof(ThreadSlot) + sizes_.stack_room * sizeof(Word);
    header.dictionary = place(sizes_.dictionary, 1);
    header.threads = place(sizes_.threads, slot);
    header.rings = place(sizes_.threads, sizes_.ring_events * sizeof(Event));
    header.marks = place(sizes_.marks, sizeof(MarkSlot));
    header.collectives = place(sizes_.collectives, sizeof(CollectiveSlot));
    header.open = place(sizes_.open, sizeof(CollectiveSlot));
    header.groups = place(sizes_.groups, sizeof(GroupSlot));
    header.timed = place(sizes_.timed, sizeof(CollectiveSlot));
    return at;
  }
  static void fill(CollectiveSlot& slot, Phase phase, std::uint64_t number) {
    slot.commit = 0;
    slot.tsc = 5000 + number;
    slot.number = number;
    slot.sequence = number * 10;
    slot.bytes = 1 << 20;
    slot.names = std::uint64_t{1} << 48 | std::uint64_t{2} << 32 | 1;
    slot.who = std::uint64_t{77} << 32 | std::uint64_t{6} << 16 |
               static_cast<std::uint64_t>(Role::kRoot) << 8 | static_cast<std::uint64_t>(phase);
  }

  RecordSizes sizes_;
  std::uint64_t size_ = 0;
  Fd fd_;
  char* base_ = nullptr;
};

// Adds marks, collectives, and clocks of two ticks a nanosecond.
inline void fill_rings(RecordBuilder& record) {
  record.mark(MarkKind::kStep, 6, "");
  record.mark(MarkKind::kSectionBegin, 1, "forward");
  record.collective(Phase::kBegin, 1);
  record.collective(Phase::kEnd, 1);
  record.collective(Phase::kBegin, 2);
  record.open_collective(1, 2);
  record.timed_call(1'700'000'000'000'000'000, 5000);
  auto* group = record.at<GroupSlot>(record.header().groups.offset);
  group->begun = 2;
  group->issued = 20;
  group->ended = 10;
  group->last = 1'000;
  record.header().step = 7;
  for (std::uint64_t i = 0; i < 2; ++i) {
    ClockPair& pair = record.header().clocks[i];
    pair.tsc = 1'000 + i * 2'000'000'000;
    pair.monotonic_ns = 5'000 + i * 1'000'000'000;
    pair.realtime_ns = 1'700'000'000'000'000'000 + i * 1'000'000'000;
    pair.number = 2;
  }
}

// Adds some of everything.
inline void fill_record(RecordBuilder& record) {
  record.entry(EntryKind::kText, 1, "/home/user/train.py");
  record.code(1, "main", 1, 10, std::string_view("\x01\x01\x01\x03", 4));
  record.code(2, "Trainer.step", 1, 40);
  const RankRun runs[] = {{0, 1, 4}, {16, 8, 2}};
  record.group(1, "default_pg", runs);
  record.entry(EntryKind::kOperation, 2, "allreduce_");
  const Place stack[] = {Place::of(1, 12, static_cast<std::uint8_t>(Kind::kLine)),
                         Place::of(2, 44, static_cast<std::uint8_t>(Kind::kLine))};
  record.thread(0, "MainThread", stack);
  record.thread(2, "pin_memory", std::span(stack).first(1));
  for (std::uint64_t i = 0; i < 40; ++i) record.event(0, 100 + i, stack[i % 2]);
  fill_rings(record);
}

struct FullRecord : RecordBuilder {
  explicit FullRecord(const RecordSizes& sizes = {}) : RecordBuilder(sizes) { fill_record(*this); }
};

// Returns the message of the Error that `act` throws; empty if it throws none.
template <class Act>
std::string refusal(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace oddrank::trace
