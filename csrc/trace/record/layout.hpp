// How the bytes of a record file are shared out.
#pragma once

#include <cstddef>

#include "trace/record/format.hpp"

namespace oddrank::trace {

constexpr std::size_t kRankBytes = 4 << 20;
constexpr std::size_t kChildBytes = 256 << 10;
constexpr std::size_t kFewestBytes = 128 << 10;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

// Fills in size and regions of a header for a file of `bytes` (a multiple of a page between
// kFewestBytes and kMostBytes; anything else is rounded into that).
//
// A quarter goes to the dictionary, a sixteenth to marks and collectives, what threads and open
// collectives leave to the rings. A rank's 4 MiB: 64 threads with 254 frames each, 2,048 marks and
// collectives, 42 blocks of 4,096 events.
void share_out(Header& header, std::size_t bytes) noexcept;

// Frames that fit into a slot of the header's threads.
std::uint32_t stack_room_of(const Header& header) noexcept;
// Blocks of the ring that the first thread of a file gets (a power of two); the others get one.
std::uint32_t first_ring_blocks(const Header& header) noexcept;

}  // namespace oddrank::trace
