// The header check and the CRC-32 of record files.
#include "trace/format/checks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

namespace oddrank::trace {
namespace {

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

HeaderFault check_header(const Header& header, std::uint64_t bytes_on_disk) noexcept {
  if (bytes_on_disk < kPage) return HeaderFault::kTooShort;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    const bool blank = std::all_of(std::begin(header.magic), std::end(header.magic),
                                   [](char byte) { return byte == 0; });
    return blank ? HeaderFault::kBlank : HeaderFault::kForeign;
  }
  if (header.endian != kEndian) return HeaderFault::kByteOrder;
  if (header.version != kVersion) return HeaderFault::kOtherVersion;
  if (header.size < kPage || header.size > kLargestFile) return HeaderFault::kSize;
  return header.size > bytes_on_disk ? HeaderFault::kCut : HeaderFault::kNone;
}

std::uint32_t crc32(const void* data, std::size_t size, std::uint32_t begin) noexcept {
  std::uint32_t crc = ~begin;
  for (const auto* at = static_cast<const unsigned char*>(data); size > 0; ++at, --size) {
    crc = kCrcTable[(crc ^ *at) & 0xFF] ^ crc >> 8;
  }
  return ~crc;
}

}  // namespace oddrank::trace
