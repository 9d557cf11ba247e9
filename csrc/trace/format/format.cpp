// Computes the regions of a record file; checks headers and entries.
#include "trace/format/format.hpp"

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

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value & 1) != 0 ? value >> 1 ^ 0xEDB88320U : value >> 1;
    }
    table[i] = value;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

}  // namespace

void share_out(Header& header, std::size_t bytes) noexcept {
  const std::size_t size =
      std::clamp<std::size_t>(bytes, kFewestBytes, kLargestFile) / kPage * kPage;
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
  const std::uint32_t groups = threads;  // as many: both grow with the job
  header.groups = take(at, groups, sizeof(GroupSlot));
  // Powers of two: the low bits of a claim number select the slot.
  header.marks = take(at, std::bit_floor(part(32, sizeof(MarkSlot))), sizeof(MarkSlot));
  header.collectives =
      take(at, std::bit_floor(part(32, sizeof(CollectiveSlot))), sizeof(CollectiveSlot));
  header.timed = take(at, large ? 256 : 0, sizeof(CollectiveSlot));
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

std::string fault_of(const Header& header, std::uint64_t on_disk) {
  const std::string_view magic(header.magic, sizeof kMagic);
  const bool is_blank = magic.find_first_not_of('\0') == std::string_view::npos;
  if (!is_blank && magic != std::string_view(kMagic, sizeof kMagic)) {
    return "is not a record of oddrank: it begins with other bytes";
  }
  if (on_disk < kPage) {
    return "has " + std::to_string(on_disk) +
           " bytes, less than a header: copy it again, or leave it out if its process died early";
  }
  if (is_blank) {
    return "is not a record of oddrank, or its process died before it could begin one: leave it "
           "out";
  }
  if (header.endian != kEndian) {
    return "has another byte order: read it on a machine like the one that wrote it";
  }
  if (header.version != kVersion) {
    return "has version " + std::to_string(header.version) + " and this oddrank reads version " +
           std::to_string(kVersion) + ": read it with the oddrank that the job uses";
  }
  const std::string size = std::to_string(header.size);
  if (header.size < kPage || header.size > kLargestFile) {
    return "says that it has " + size + " bytes: its header is broken";
  }
  if (header.size <= on_disk) return "";
  return "has only " + std::to_string(on_disk) + " of its " + size +
         " bytes: it was cut, copy it again";
}

std::uint32_t crc32(const void* data, std::size_t size, std::uint32_t begin) noexcept {
  std::uint32_t crc = ~begin;
  for (const auto* at = static_cast<const unsigned char*>(data); size > 0; ++at, --size) {
    crc = kCrcTable[(crc ^ *at) & 0xFF] ^ crc >> 8;
  }
  return ~crc;
}

}  // namespace oddrank::trace
