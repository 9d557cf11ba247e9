// Checks of a record file's header and of its dictionary entries (CRC).
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/format/format.hpp"

namespace oddrank::trace {

// Largest record file. Bounds the memory that a hostile file can make a reader take.
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;

// Why a reader refuses a file.
enum class HeaderFault {
  kNone,
  kTooShort,   // shorter than a header
  kBlank,      // the magic number is still zero: its process is filling the header
  kForeign,    // another magic number
  kByteOrder,  // written on a machine with another byte order
  kOtherVersion,
  kSize,  // not a size that a record can have
  kCut,   // the file is shorter than the header says
};

// Checks a copy of the first page of a file of `bytes_on_disk` bytes.
HeaderFault check_header(const Header& header, std::uint64_t bytes_on_disk) noexcept;

// CRC-32 (IEEE 802.3, as in zlib). `begin` is the CRC of the preceding bytes.
std::uint32_t crc32(const void* data, std::size_t size, std::uint32_t begin = 0) noexcept;

}  // namespace oddrank::trace
