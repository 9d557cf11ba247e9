// Copies slots twice: a committed slot that is equal in both copies is whole.
#include "trace/read/records.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_set>

#include "os/encoding.hpp"

namespace oddrank::trace {
namespace {

Mark record_of(const MarkSlot& slot) {
  Mark mark;
  mark.tsc = value_of(slot.tsc);
  mark.value = value_of(slot.value);
  const std::uint64_t who = value_of(slot.who);
  mark.tid = static_cast<std::uint32_t>(who >> 32);
  mark.kind = static_cast<MarkKind>(who & 0xFFFF);
  const std::size_t length = std::min<std::size_t>(who >> 16 & 0xFFFF, sizeof slot.text);
  mark.text.assign(reinterpret_cast<const char*>(slot.text), length);
  return mark;
}

CollectiveRecord record_of(const CollectiveSlot& slot) {
  CollectiveRecord record;
  static_cast<CollectiveFacts&>(record) = unpack(slot);
  record.tsc = value_of(slot.tsc);
  record.number = value_of(slot.number);
  record.phase = phase_of(slot);
  return record;
}

// Slots that are copied at a time: a small file may have a large region, all of holes.
constexpr std::uint32_t kBlock = 4096;

// Calls `each` with number and copy of the region's first `count` slots, but for slots that change
// meanwhile.
template <class Slot, class Each>
void for_each_slot(const RecordFile& file, const Region& region, std::uint64_t count, Each each) {
  for (std::uint64_t begin = 0; begin < count; begin += kBlock) {
    const std::uint64_t offset = region.offset + begin * sizeof(Slot);
    const std::uint64_t slots = std::min<std::uint64_t>(kBlock, count - begin);
    const std::vector<std::uint64_t> first = file.words(offset, slots * sizeof(Slot));
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::vector<std::uint64_t> second = file.words(offset, slots * sizeof(Slot));
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (std::uint64_t i = 0; i < slots; ++i) {
      const std::size_t word = i * sizeof(Slot) / sizeof(Word);
      if (std::memcmp(&first[word], &second[word], sizeof(Slot)) != 0) continue;
      each(begin + i, *reinterpret_cast<const Slot*>(&second[word]));
    }
  }
}

template <class Slot, class Record>
Records<Record> read_ring(const RecordFile& file, const Region& region, Word Header::*counter) {
  const auto claimed = [&] { return value_of((*file.header()).*counter); };
  Records<Record> records;
  const std::uint64_t room = region.count;
  const std::uint64_t used = std::min(claimed(), room);
  for_each_slot<Slot>(file, region, used, [&](std::uint64_t i, const Slot& slot) {
    if (value_of(slot.commit) == 0) return;  // nothing was committed
    const std::uint64_t claim = value_of(slot.commit) - 1;
    if (claim % room != i) return;
    records.list.push_back(record_of(slot));
    records.list.back().claim = claim;
  });
  // Read the counter again after the copies: claim c + room overwrites the slot of claim c, whose
  // old commit word may remain for a moment.
  records.claimed = claimed();
  const std::uint64_t oldest = records.claimed > room ? records.claimed - room : 0;
  std::erase_if(records.list, [&](const Record& record) {
    return record.claim < oldest || record.claim >= records.claimed;
  });
  std::ranges::sort(records.list, {}, &Record::claim);
  records.unfinished = std::min(records.claimed, room) - records.list.size();
  return records;
}

// Merges one record. Any of a collective's records may be missing or incomplete: a begin has no
// sequence yet, and an end without an open entry has only its number.
void add(Collective& to, const CollectiveRecord& record) {
  to.number = record.number;
  if (record.phase == Phase::kEnd || record.phase == Phase::kFailed) {
    to.state = Collective::State::kEnded;
    to.end = record.tsc;
    to.failed = record.phase == Phase::kFailed;
  } else if (record.phase == Phase::kIssued) {
    to.state = Collective::State::kIssued;
  } else {
    to.begin = record.tsc;
  }
  const std::uint64_t sequence = record.sequence != kNoSequence ? record.sequence : to.sequence;
  if (record.tid != 0) static_cast<CollectiveFacts&>(to) = record;
  to.sequence = sequence;
}

// By torch's ScalarType.
constexpr auto kTypes = split<47>(
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool "
    "qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 "
    "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64 uint1 "
    "uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7 float8_e8m0fnu "
    "float4_e2m1fn_x2 bcomplex32");

}  // namespace

Records<Mark> read_marks(const RecordFile& file) {
  auto marks = read_ring<MarkSlot, Mark>(file, file.layout().marks, &Header::marks_claimed);
  // The writer repeats the begin of an open section, so that later marks don't push it out.
  std::unordered_set<std::uint64_t> begun;
  std::erase_if(marks.list, [&begun](const Mark& mark) {
    return mark.kind == MarkKind::kSectionBegin && !begun.insert(mark.value).second;
  });
  return marks;
}

Records<CollectiveRecord> read_collectives(const RecordFile& file) {
  return read_ring<CollectiveSlot, CollectiveRecord>(file, file.layout().collectives,
                                                     &Header::collectives_claimed);
}

std::vector<CollectiveRecord> read_open_collectives(const RecordFile& file) {
  std::vector<CollectiveRecord> records;
  const Region& region = file.layout().open;
  for_each_slot<CollectiveSlot>(file, region, region.count,
                                [&](std::uint64_t, const CollectiveSlot& slot) {
                                  const std::uint64_t claim = value_of(slot.commit);
                                  // `number` is set first, as the claim: another collective is
                                  // being written here.
                                  if (claim == 0 || claim != value_of(slot.number)) return;
                                  records.push_back(record_of(slot));
                                  records.back().claim = claim;
                                });
  std::ranges::sort(records, {}, &CollectiveRecord::claim);
  return records;
}

std::string_view name_of(Collective::State state) noexcept {
  static constexpr std::array kNames{"open", "ended", "issued", "timed"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view name_of_type(std::uint16_t data_type) noexcept {
  return data_type < kTypes.size() ? kTypes[data_type] : std::string_view{};
}

std::uint16_t type_named(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kTypes, name);
  return found == kTypes.end() ? kNoType : static_cast<std::uint16_t>(found - kTypes.begin());
}

std::uint64_t Collective::input() const noexcept {
  if (role == Role::kRecv) return 0;
  return role == Role::kSend || side != Side::kOutput ? bytes : other;
}

std::uint64_t Collective::output() const noexcept {
  if (role == Role::kSend) return 0;
  return role == Role::kRecv || side != Side::kInput ? bytes : other;
}

std::vector<GroupProgress> read_progress(const RecordFile& file) {
  const Region& region = file.layout().groups;
  std::vector<GroupProgress> progress;
  for (std::uint32_t begin = 0; begin < region.count; begin += kBlock) {
    const std::uint32_t count = std::min(kBlock, region.count - begin);
    const auto words =
        file.words(region.offset + begin * sizeof(GroupSlot), count * sizeof(GroupSlot));
    const auto* slots = reinterpret_cast<const GroupSlot*>(words.data());
    for (std::uint32_t i = 0; i < count; ++i) {
      const GroupSlot& slot = slots[i];
      if (value_of(slot.begun) == 0) continue;
      progress.push_back({begin + i + 1, value_of(slot.begun), value_of(slot.issued),
                          value_of(slot.ended), value_of(slot.last)});
    }
  }
  return progress;
}

std::vector<Collective> read_timed(const RecordFile& file) {
  const auto found = read_ring<CollectiveSlot, CollectiveRecord>(file, file.layout().timed,
                                                                 &Header::timed_claimed);
  std::vector<Collective> list;
  list.reserve(found.list.size());
  for (const CollectiveRecord& one : found.list) {
    Collective& made = list.emplace_back();
    static_cast<CollectiveFacts&>(made) = one;
    made.state = Collective::State::kTimed;
    made.begin = one.number;
    made.end = one.number + one.tsc;
  }
  return list;
}

std::vector<Collective> read_joined_collectives(const RecordFile& file) {
  std::map<std::uint64_t, Collective> joined;
  // Read the open table first: if a collective ends meanwhile, the ring has its end.
  for (const CollectiveRecord& record : read_open_collectives(file)) {
    add(joined[record.number], record);
  }
  for (const CollectiveRecord& record : read_collectives(file).list) {
    add(joined[record.number], record);
  }
  std::vector<Collective> list;
  list.reserve(joined.size());
  for (const auto& [number, collective] : joined) list.push_back(collective);
  return list;
}

}  // namespace oddrank::trace
