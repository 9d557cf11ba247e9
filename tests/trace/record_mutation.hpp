// Mutates records for the fuzzer and a test: anything anywhere, but mostly so that the reader's
// first checks pass. Regions stay findable; checksums and claims are usually corrected afterwards.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "trace/format/format.hpp"

// Mutates some bytes as libFuzzer does; returns their new number.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace oddrank::trace {

constexpr std::uint64_t kExtremes[] = {
    0,           1,           2,          7,     8,          16,         24,
    63,          64,          128,        255,   4095,       4096,       0x7FFF'FFFF,
    0x8000'0000, 0xFFFF'FFFF, ~0ULL << 3, ~0ULL, ~0ULL >> 1, 1ULL << 32, 1ULL << 63};

// A record of arbitrary bytes.
class Mutation {
 public:
  Mutation(std::uint8_t* data, std::size_t size, unsigned seed)
      : data_(data), size_(size), random_(seed) {}

  std::size_t below(std::size_t end) { return random_() % end; }
  bool once_in(std::size_t times) { return below(times) == 0; }

  void change() {
    const Part part = some_part();
    if (part.size < sizeof(Word)) return;
    const std::size_t word = part.at + below(part.size / sizeof(Word)) * sizeof(Word);
    const std::size_t most = std::min<std::size_t>(part.at + part.size - word, 8U << below(6));
    if (once_in(3)) {
      std::memcpy(data_ + word, &kExtremes[below(std::size(kExtremes))], sizeof(Word));
    } else {
      LLVMFuzzerMutate(data_ + word, most, most);
    }
  }

  void make_right() {
    Header* head = header();
    if (!once_in(64)) std::memcpy(head->magic, kMagic, sizeof kMagic);
    if (!once_in(64)) head->version = kVersion;
    if (!once_in(64)) head->endian = kEndian;
    if (!once_in(16)) head->size = size_;
    if (!once_in(8)) entries();
    if (!once_in(8)) threads();
    if (!once_in(8)) claims<MarkSlot>(head->marks, head->marks_claimed);
    if (!once_in(8)) claims<CollectiveSlot>(head->collectives, head->collectives_claimed);
    if (!once_in(8)) claims<CollectiveSlot>(head->timed, head->timed_claimed);
    if (!once_in(8)) open();
  }

 private:
  struct Part {
    std::size_t at = 0;
    std::size_t size = 0;
  };
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): libFuzzer's bytes are aligned
  Header* header() { return reinterpret_cast<Header*>(data_); }
  // Returns the part of a region that is inside the input.
  Part part_of(const Region& region) const {
    if (region.offset % sizeof(Word) != 0 || region.offset < sizeof(Header) ||
        region.offset >= size_) {
      return {};
    }
    const std::uint64_t size = std::min<std::uint64_t>(region.bytes(), size_ - region.offset);
    return {region.offset, size / sizeof(Word) * sizeof(Word)};
  }
  Part some_part() {
    const Header* head = header();
    constexpr std::size_t kHost = offsetof(Header, host), kClocks = offsetof(Header, clocks);
    const Part parts[] = {{offsetof(Header, size), kHost - offsetof(Header, size)},
                          {kClocks, offsetof(Header, displaced_by) - kClocks},
                          {kHost, sizeof(Header) - kHost},
                          part_of(head->dictionary),
                          part_of(head->dictionary),
                          part_of(head->threads),
                          part_of(head->rings),
                          part_of(head->marks),
                          part_of(head->collectives),
                          part_of(head->timed),
                          part_of(head->groups),
                          part_of(head->open)};
    return parts[below(std::size(parts))];
  }

  void entries() {
    const Part part = part_of(header()->dictionary);
    std::size_t at = part.at;
    const std::size_t end = part.at + part.size;
    while (end - at >= sizeof(EntryHead) && !once_in(64)) {
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
      auto* entry = reinterpret_cast<EntryHead*>(data_ + at);
      std::size_t size = entry->size;
      if (size == 0) return;
      if (size > end - at || size < sizeof(EntryHead)) {
        size = sizeof(EntryHead) + below(8) * sizeof(Word);
        if (size > end - at) return;
      }
      size = size / sizeof(Word) * sizeof(Word);
      const std::size_t room = size - sizeof(EntryHead);
      if (entry->bytes > room || room - entry->bytes >= sizeof(Word)) {
        entry->bytes = static_cast<std::uint32_t>(room);
      }
      entry->size = size;
      if (entry->kind - 1 > 3) entry->kind = static_cast<std::uint32_t>(1 + below(4));
      entry->crc = crc32(entry + 1, entry->bytes);
      at += size;
    }
  }

  void threads() {
    const Region region = header()->threads;
    const Region rings = header()->rings;
    const Part part = part_of(region);
    if (region.stride < sizeof(ThreadSlot) + sizeof(Word) || region.stride % sizeof(Word) != 0) {
      return;
    }
    for (std::size_t at = 0; part.size - at >= region.stride; at += region.stride) {
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
      auto* slot = reinterpret_cast<ThreadSlot*>(data_ + part.at + at);
      if (static_cast<std::uint32_t>(slot->state) > 2 && !once_in(8)) {
        slot->state = (slot->state >> 32) << 32 | below(3);
      }
      const std::size_t room = (region.stride - sizeof(ThreadSlot)) / sizeof(Word);
      if ((slot->stack_room == 0 || slot->stack_room > room) && !once_in(8)) {
        slot->stack_room = static_cast<std::uint32_t>(1 + below(room));
      }
      const std::uint64_t ring = std::uint64_t{slot->ring_events} * sizeof(Event);
      const bool fits = ring <= rings.bytes() && slot->ring_offset >= rings.offset &&
                        slot->ring_offset - rings.offset <= rings.bytes() - ring;
      if ((!fits || !std::has_single_bit(slot->ring_events)) && !once_in(8)) {
        slot->ring_events = 1U << below(6);
        slot->ring_offset = rings.offset + below(8) * sizeof(Event);
      }
    }
  }

  // Sets the last claim of each slot, as if all were committed.
  template <class Slot>
  void claims(const Region& region, Word& claimed) {
    const Part part = part_of(region);
    const std::uint64_t room = part.size / sizeof(Slot);
    if (room == 0) return;
    if (claimed > room * 1000) claimed = below(room * 3);
    for (std::uint64_t i = 0; i < room && i < claimed; ++i) {
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
      auto* slots = reinterpret_cast<Slot*>(data_ + part.at);
      if (!once_in(16)) slots[i].commit = i + (claimed - 1 - i) / room * room + 1;
    }
  }

  void open() {
    const Part part = part_of(header()->open);
    for (std::size_t i = 0; i < part.size / sizeof(CollectiveSlot); ++i) {
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
      auto* slots = reinterpret_cast<CollectiveSlot*>(data_ + part.at);
      if (!once_in(8)) slots[i].commit = slots[i].number.load();
    }
  }

  std::uint8_t* data_;
  std::size_t size_;
  std::minstd_rand random_;
};

// libFuzzer's buffers come from its allocator and may not be aligned.
inline bool is_record(const std::uint8_t* data, std::size_t size) {
  return size >= kPage && std::bit_cast<std::uintptr_t>(data) % sizeof(Word) == 0;
}

// Returns the new size.
inline std::size_t mutate_record(std::uint8_t* data, std::size_t size, std::size_t most,
                                 unsigned seed) {
  Mutation mutation(data, size, seed);
  if (!is_record(data, size) || mutation.once_in(64)) return LLVMFuzzerMutate(data, size, most);
  if (mutation.once_in(128)) return kPage + mutation.below(size - kPage + 1);  // cut
  for (std::size_t changes = 1 + mutation.below(5); changes > 0; --changes) mutation.change();
  if (!mutation.once_in(16)) mutation.make_right();
  return size;
}

}  // namespace oddrank::trace
