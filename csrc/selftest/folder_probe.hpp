// Tries folders of file systems, each in a process of its own: it alone hangs where one is dead.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace oddrank::selftest {

// What is done to one small file, in this order; one repeat is all of them.
inline constexpr std::array kFolderSteps{"create", "write", "fsync", "read", "close", "unlink"};
// Of `error`: what was read is not what was written.
inline constexpr int kReadsOther = -1;

struct FolderResult {
  std::array<std::vector<double>, kFolderSteps.size()> seconds;  // by step, one a repeat
  std::size_t stopped_at = kFolderSteps.size();  // the step that failed or hangs; else the end
  bool hangs = false;                            // not done in time
  int error = 0;                                 // errno, or kReadsOther; 0 where it hangs
  pid_t left = 0;  // killed and not gone in time: it sleeps uninterruptibly, or has no core
};

// All folders at the same time, until `seconds` are over. The file is called `name`-0 to `name`-7,
// the first that is free, and is gone afterwards; one of this user that is older than an hour was
// left by a run that was killed, and makes way. Returns 0.2 s later at the latest, whatever the
// file systems do. Throws SystemError where no process can be made.
std::vector<FolderResult> probe_folders(const std::vector<std::string>& folders,
                                        const std::string& name, double seconds, int repeats);

}  // namespace oddrank::selftest
