// Computes the regions of a record file.
#include "trace/format/layout.hpp"

#include <algorithm>
#include <bit>

namespace oddrank::trace {
namespace {

std::uint32_t slot_bytes(std::uint32_t stack_room) noexcept {
  return static_cast<std::uint32_t>((sizeof(ThreadSlot) + stack_room * sizeof(Word) + 63) / 64 *
                                    64);
}

Region take(std::uint64_t& at, std::uint32_t count, std::uint32_t stride) noexcept {
  const Region region{at, count, stride};
  at += (region.bytes() + 63) / 64 * 64;
  return region;
}

}  // namespace

void share_out(Header& header, std::size_t bytes) noexcept {
  const std::size_t size = std::clamp(bytes, kFewestBytes, kMostBytes) / kPage * kPage;
  const auto part = [size](std::size_t divisor, std::size_t stride) {
    return static_cast<std::uint32_t>(size / divisor / stride);
  };
  const bool large = size >= (1 << 20);
  header.size = size;
  std::uint64_t at = kPage;
  header.dictionary = take(at, static_cast<std::uint32_t>(size / 4), 1);
  const std::uint32_t threads =
      std::clamp<std::uint32_t>(static_cast<std::uint32_t>(size >> 14), 8, 4096);
  header.threads = take(at, threads, slot_bytes(large ? 254 : 126));
  header.open = take(at, large ? 64 : 16, sizeof(CollectiveSlot));
  // Powers of two: the low bits of a claim number select the slot.
  header.marks = take(at, std::bit_floor(part(32, sizeof(MarkSlot))), sizeof(MarkSlot));
  header.collectives =
      take(at, std::bit_floor(part(32, sizeof(CollectiveSlot))), sizeof(CollectiveSlot));
  const auto block = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(std::bit_floor(size / 64), 8 << 10, 1 << 20));
  at = (at + kPage - 1) / kPage * kPage;
  header.rings = take(at, static_cast<std::uint32_t>((size - at) / block), block);
}

std::uint32_t stack_room_of(const Header& header) noexcept {
  return static_cast<std::uint32_t>((header.threads.stride - sizeof(ThreadSlot)) / sizeof(Word));
}

std::uint32_t first_ring_blocks(const Header& header) noexcept {
  return std::max<std::uint32_t>(1, std::bit_floor(header.rings.count / 2));
}

}  // namespace oddrank::trace
