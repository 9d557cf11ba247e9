// Copies of records small enough to send: what a judge needs of a rank, without its history.
#pragma once

#include <cstddef>
#include <string>

#include "trace/read/file.hpp"

namespace oddrank::trace {

// Largest size of a slim record; a training rank's has 10 to 20 KiB.
constexpr std::size_t kLargestSlim = std::size_t{256} << 10;

// Returns a record of the same version, in which read_snapshot() finds the same process, step, end,
// stacks, groups, open and last collectives, open sections and the code that is recorded less
// closely. Of the rest it keeps the last:
// - events: 7 of the main thread (127 if its stack is empty: they show where it ended), 1 of others
// - begins and ends of collectives: 128
// - marks: 32
// Leaves out ended threads, except the main one and those that issued an open collective. Keeps the
// dictionary's ids; bytecode offsets become lines, and line tables are left out. A copy of a
// running process is as consistent as a snapshot of it. Throws Error if the file was cut meanwhile.
//
// To stay below kLargestSlim, a record of more than 256 threads loses threads, one of very deep or
// many stacks the frames before the innermost, one of long names the names of some functions.
std::string slim_record(const RecordFile& file);

}  // namespace oddrank::trace
