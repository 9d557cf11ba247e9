// What /proc and the cgroup say of a process, without its help.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace oddrank::run {

struct Usage {
  // CPU time, in steps of a clock tick (10 ms), and the time for which main threads could run and
  // got no core: on a busy host a process at work has little of the former.
  std::uint64_t cpu_ns = 0;
  std::uint64_t io_bytes = 0;  // passed to read() and write(), and read from and written to disks
};
// Returns the sums of a process and its descendants. CPU time of those that have ended counts once
// their parent has waited for them. Reads /proc of each process of the host.
Usage usage_of(pid_t pid);

// Returns the living descendants of a process, and when they started.
std::map<pid_t, std::uint64_t> descendants_of(pid_t pid);

struct TaskLook {
  char state = 0;  // letter of /proc/PID/stat; 0: gone
  std::uint64_t cpu_ns = 0;
};
// Looks at these threads of a process, and at the main one.
std::map<std::uint32_t, TaskLook> look_at_threads(pid_t pid,
                                                  const std::vector<std::uint32_t>& tids);
// Counts the processes that the kernel killed in a process's cgroup because memory was short.
class OomKills {
 public:
  explicit OomKills(pid_t pid);
  // Returns the number since the constructor. It stays once the cgroup is gone.
  std::uint64_t count();

 private:
  std::string file_;  // memory.events of cgroup 2, memory.oom_control of cgroup 1; "": none
  std::uint64_t first_ = 0, last_ = 0;
};

}  // namespace oddrank::run
