// Reading a process's state from /proc.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

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

// A text of its own for each boot of a machine; empty where it is not readable.
std::string boot_id();

// The inode of this process's pid namespace, within which alone a pid names a process; 0 where it
// is not readable.
std::uint64_t pid_namespace() noexcept;

}  // namespace oddrank
