// Sizes and regions of a record file.
#pragma once

#include <cstddef>

#include "trace/format/format.hpp"

namespace oddrank::trace {

constexpr std::size_t kRankBytes = 4 << 20;
constexpr std::size_t kChildBytes = 256 << 10;
constexpr std::size_t kFewestBytes = 128 << 10;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

// Fills in size and regions of a header for a file of `bytes`, clamped to kFewestBytes..kMostBytes
// and rounded down to a page.
//
// The dictionary gets 1/4, marks and collectives 1/32 each, and rings the rest after threads and
// open collectives. A rank's 4 MiB: 256 threads with 256 frames each, 64 open collectives, 2,048
// marks, 2,048 collectives, 35 blocks of 4,096 events.
void share_out(Header& header, std::size_t bytes) noexcept;

// Number of frames that fit into a thread slot.
std::uint32_t stack_room_of(const Header& header) noexcept;
// Blocks in the ring of a file's first thread (a power of two); every later thread gets one.
std::uint32_t first_ring_blocks(const Header& header) noexcept;

}  // namespace oddrank::trace
