// Reading a process's state from /proc.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace oddrank {

// At most size - 1 bytes of a small file, terminated; returns how many, 0 where it is not readable.
std::size_t read_small_file(const char* path, char* buffer, std::size_t size) noexcept;

// What /proc/PID/stat says; state 0 where there is no such process.
struct ProcStat {
  char state = 0;
  pid_t parent = 0;
  std::uint64_t start_time = 0;  // in clock ticks since boot: tells a pid used again
  std::uint64_t cpu_ticks = 0;
  int wait_status = 0;  // as waitpid() gives it; of a zombie only
};
ProcStat read_stat(pid_t pid) noexcept;

}  // namespace oddrank
