// Sizes and regions of a record file, and its checks: of the header, of dictionary entries (CRC)
// and of source files (hash).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trace/format/format.hpp"

namespace oddrank::trace {

constexpr std::size_t kRankBytes = 4 << 20;
constexpr std::size_t kChildBytes = 256 << 10;
constexpr std::size_t kFewestBytes = 128 << 10;
// Bounds the memory that a hostile file can make a reader take.
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;

// Fills in size and regions of a header for a file of `bytes`, clamped to
// kFewestBytes..kLargestFile and rounded down to a page.
//
// The dictionary gets 1/4, marks and collectives 1/32 each, and rings the rest after threads and
// open collectives. A rank's 4 MiB: 256 threads with 256 frames each, 64 open collectives, 2,048
// marks, 2,048 collectives, 35 blocks of 4,096 events.
void share_out(Header& header, std::size_t bytes) noexcept;

// Number of frames that fit into a thread slot.
std::uint32_t stack_room_of(const Header& header) noexcept;
// Blocks in the ring of a file's first thread (a power of two); every later thread gets one.
std::uint32_t first_ring_blocks(const Header& header) noexcept;

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

// Hashes a source file: tells a reader whether it has changed since it ran. Returns FNV-1a of the
// file's bytes; 0 if it can't be read, is no regular file or is over 4 MiB. Blocks on the disk.
std::uint64_t source_hash(const std::string& path) noexcept;

}  // namespace oddrank::trace
