// Reading a process's state from /proc; the calling thread's id.
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace oddrank {

// Reads at most size - 1 bytes of a file and ends them with 0. Returns their number, 0 on an error.
std::size_t read_small_file(const char* path, char* buffer, std::size_t size) noexcept;

// The fields of /proc/PID/stat that we use; all zero if there is no such process.
struct ProcStat {
  char state = 0;
  bool is_stopped() const noexcept { return state == 'T' || state == 't'; }  // signal, debugger
  bool is_zombie() const noexcept { return state == 'Z' || state == 'X'; }
  pid_t parent = 0;
  std::uint64_t start_time = 0;  // in clock ticks since boot: differs if the pid is used again
  std::uint64_t cpu_ticks = 0;
  std::uint64_t child_ticks = 0;  // ticks of children that it has waited for
  int wait_status = 0;            // as waitpid() gives it; only zombies have one
};
ProcStat read_stat(pid_t pid) noexcept;
// The same of one thread of a process.
ProcStat read_task_stat(pid_t pid, pid_t tid) noexcept;

// Returns the kernel function in which a process or thread sleeps; "" if it is not readable.
std::string wchan_of(pid_t id);

// Returns the id of this boot of this machine; empty if it is not readable.
std::string boot_id();
// Whether `id` names the current boot. False if either is unknown (empty).
inline bool is_this_boot(std::string_view id) { return !id.empty() && id == boot_id(); }

// Returns the inode of this process's pid namespace, 0 if it is not readable. A pid names a process
// only within its namespace.
std::uint64_t pid_namespace() noexcept;

// Returns the calling thread's native id. Makes a system call only at a thread's first call, and at
// its first call after a fork.
inline std::uint32_t thread_id() noexcept {
  // Initial-exec: read without a call. It takes 4 bytes of the space that glibc reserves for
  // libraries loaded late.
  static __thread std::uint32_t id __attribute__((tls_model("initial-exec"))) = 0;
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { id = 0; });
  static_cast<void>(registered);
  if (id == 0)
    id = static_cast<std::uint32_t>(::syscall(SYS_gettid));  // glibc 2.28 has no gettid()
  return id;
}

}  // namespace oddrank
