// Where record files lie, how much of a file system they may take, and who clears up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace oddrank::trace {

// A new, empty file whose room is taken: writing to it never raises SIGBUS.
struct RecordPlace {
  Fd file;
  std::size_t bytes = 0;
  std::string path;
};

// Whose record: a rank's, or that of a process which a rank has forked or spawned.
struct RecordOwner {
  std::int32_t rank = 0;
  bool is_child = false;
};

// Makes "rank<rank>-<pid>-<start time>.trace" (or "child...") in `base`/`job`, in the first base
// folder that is this user's and has the room: all of oddrank's files in it together take at most a
// sixteenth of its file system, and of a file system under `small_bytes` nothing is taken while
// there is another folder left. Halves `bytes` down to 128 KiB before it gives up. Of this owner's
// records whose processes have ended the last few stay, the others go: workers come and go with
// every epoch, and a job may be started again under its name. Throws Error: why each folder was
// refused.
RecordPlace make_record_file(const std::vector<std::string>& bases, const std::string& job,
                             RecordOwner owner, std::size_t bytes,
                             std::uint64_t small_bytes = std::uint64_t{1} << 30);

// Removes from `base` the folders of jobs whose recorded processes have all ended, but for `own`,
// the last `keep` of several ranks and the last `keep` of one. A process that can't be looked up
// from here (another host's, another container's) counts as living for a week. Returns how many
// were removed; never throws for what it cannot remove.
int remove_dead_jobs(const std::string& base, const std::string& own, int keep) noexcept;

}  // namespace oddrank::trace
