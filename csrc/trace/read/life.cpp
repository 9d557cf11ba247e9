// Looks a record's process up in /proc.
#include "trace/read/life.hpp"

#include "base/proc_stat.hpp"

namespace oddrank::trace {

Life life_of(const Process& process) {
  const bool here = !process.boot_id.empty() && process.boot_id == boot_id() &&
                    process.pid_namespace == pid_namespace();
  if (!here) return Life::kUnknown;
  const ProcStat stat = read_stat(static_cast<pid_t>(process.pid));
  // Another start time: the pid has been given away again.
  const bool same = stat.state != 0 && stat.start_time == process.start_time;
  return same && stat.state != 'Z' && stat.state != 'X' ? Life::kAlive : Life::kDead;
}

}  // namespace oddrank::trace
