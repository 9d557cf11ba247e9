// Process groups and collectives as recorder and reader see them, and how slots hold the latter.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trace/format/format.hpp"

namespace oddrank::trace {

// The views must live only during the call.
struct GroupFacts {
  std::string_view name = {};
  std::string_view backend = {};
  std::string_view text = {};                 // its description
  std::span<const std::uint64_t> ranks = {};  // global, in group order; empty: see is_whole_job
  std::uint32_t size = 0;                     // 0: unknown
  std::uint32_t own = kNoRank;
  bool is_whole_job = false;  // it has the global ranks 0 to size - 1
};

// A broken file may hold any role and side.
struct CollectiveFacts {
  std::uint32_t group = 0;  // dictionary ids of group and operation
  std::uint32_t operation = 0;
  std::uint64_t sequence = kNoSequence;
  std::uint64_t bytes = 0;          // of the message
  std::uint16_t type = kNoType;     // torch's ScalarType
  std::uint32_t tid = 0;            // of the thread that issued it
  std::uint64_t other = 0;          // see CollectiveSlot
  std::uint32_t partner = kNoRank;  // a rank in the group
  Role role = Role::kNone;
  Side side = Side::kBoth;
};

// Fills in all but `commit`.
inline void pack(CollectiveSlot& slot, const CollectiveFacts& facts, std::uint64_t number,
                 Phase phase, std::uint64_t tsc) noexcept {
  const auto set = [](Word& word, std::uint64_t value) {
    word.store(value, std::memory_order_relaxed);
  };
  set(slot.tsc, tsc);
  set(slot.number, number);
  set(slot.sequence, facts.sequence);
  set(slot.bytes, facts.bytes);
  set(slot.names, std::uint64_t{facts.group & kLastNameId} << 48 |
                      std::uint64_t{facts.operation & kLastNameId} << 32 | facts.partner);
  set(slot.who, std::uint64_t{facts.tid} << 32 | std::uint64_t{facts.type} << 16 |
                    static_cast<std::uint64_t>(facts.side) << 12 |
                    static_cast<std::uint64_t>(facts.role) << 8 |
                    static_cast<std::uint64_t>(phase));
  set(slot.other, facts.other);
}

inline Phase phase_of(const CollectiveSlot& slot) noexcept {
  return static_cast<Phase>(slot.who.load(std::memory_order_relaxed) & 0xFF);
}

inline CollectiveFacts unpack(const CollectiveSlot& slot) noexcept {
  const std::uint64_t names = slot.names.load(std::memory_order_relaxed);
  const std::uint64_t who = slot.who.load(std::memory_order_relaxed);
  return {.group = static_cast<std::uint32_t>(names >> 48),
          .operation = static_cast<std::uint32_t>(names >> 32) & kLastNameId,
          .sequence = slot.sequence.load(std::memory_order_relaxed),
          .bytes = slot.bytes.load(std::memory_order_relaxed),
          .type = static_cast<std::uint16_t>(who >> 16),
          .tid = static_cast<std::uint32_t>(who >> 32),
          .other = slot.other.load(std::memory_order_relaxed),
          .partner = static_cast<std::uint32_t>(names),
          .role = static_cast<Role>(who >> 8 & 0xF),
          .side = static_cast<Side>(who >> 12 & 0xF)};
}

// Fills in all but `commit`. `text` is cut.
inline void pack(MarkSlot& slot, MarkKind kind, std::uint64_t value, std::string_view text,
                 std::uint32_t tid, std::uint64_t tsc) noexcept {
  std::uint64_t words[4] = {};
  const std::size_t size = text.size() < sizeof words ? text.size() : sizeof words;
  text.copy(reinterpret_cast<char*>(words), size);
  slot.tsc.store(tsc, std::memory_order_relaxed);
  slot.value.store(value, std::memory_order_relaxed);
  slot.who.store(std::uint64_t{tid} << 32 | size << 16 | static_cast<std::uint64_t>(kind),
                 std::memory_order_relaxed);
  for (int i = 0; i < 4; ++i) slot.text[i].store(words[i], std::memory_order_relaxed);
}

}  // namespace oddrank::trace
