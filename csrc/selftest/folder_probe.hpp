// Probes folders of file systems, each in its own process: a dead file system hangs only that one.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace oddrank::selftest {

// The steps of one repeat on a small file.
inline constexpr std::array kFolderSteps{"create", "write", "fsync", "read", "close", "unlink"};
// `error` if the bytes read differ from those written.
inline constexpr int kReadsOther = -1;

struct FolderResult {
  std::array<std::vector<double>, kFolderSteps.size()> seconds;  // per step, one per repeat
  std::size_t stopped_at = kFolderSteps.size();  // step that failed or hangs; the size if none did
  bool hangs = false;                            // the step was not done in time
  int error = 0;                                 // errno or kReadsOther; 0 if the step hangs
  pid_t left =
      0;  // process that was killed but did not end in time: uninterruptible or without CPU
};

// Probes all folders at the same time for at most `seconds`. Makes and removes a file `name`-0 to
// `name`-7, the first free name; a file of this user that is older than an hour is left from a
// killed run and is replaced. Returns at most 0.2 s after `seconds`, even if file systems hang.
// Throws SystemError if no process can be started.
std::vector<FolderResult> probe_folders(const std::vector<std::string>& folders,
                                        const std::string& name, double seconds, int repeats);

}  // namespace oddrank::selftest
