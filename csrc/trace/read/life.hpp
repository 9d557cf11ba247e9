// Whether the process of a record still runs, and what the kernel says of its threads.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "trace/read/file.hpp"

namespace oddrank::trace {

// kUnknown: the record comes from another machine, boot or pid namespace, where its pid is not ours
// to look up.
enum class Life : std::uint8_t { kUnknown, kAlive, kDead };

// A zombie is dead: it runs no more, though nobody has asked for its exit code.
Life life_of(const Process& process);

}  // namespace oddrank::trace
