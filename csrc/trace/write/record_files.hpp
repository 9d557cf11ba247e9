// Makes record files within a share of the file system and removes the files of dead jobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "os/fd.hpp"

namespace oddrank::trace {

// A new, empty file whose blocks are reserved: writing to it never raises SIGBUS.
struct NewRecordFile {
  Fd file;
  std::size_t bytes = 0;
  std::string path;
};

// A record's rank; is_child: the recorded process was forked or spawned by that rank.
struct RecordOwner {
  std::int32_t rank = 0;
  bool is_child = false;
  bool operator==(const RecordOwner&) const = default;
};

// All functions here count, change and remove only records that oddrank wrote: regular files of
// this user, named exactly "rank<rank>-<pid>-<start time>.trace" (or "child..."), in the folder
// base/job where they were made, with a valid header that says the same. They never touch other
// files in these folders.

// Makes such a file in `base`/`job`, in the first base folder that is this user's and has room.
// oddrank's records in a base folder take at most 1/16 of its file system, and a new one at most
// half of the free space; a file system under `small_bytes` is used only if it is the last base.
// Halves `bytes` down to 128 KiB before it gives up. Removes this owner's records of dead processes
// except the newest three: data loader workers come and go, and jobs restart under their name.
// Throws Error that says why each folder was refused.
NewRecordFile make_record_file(const std::vector<std::string>& bases, const std::string& job,
                               RecordOwner owner, std::size_t bytes,
                               std::uint64_t small_bytes = std::uint64_t{1} << 30);

// Removes from `base` the records of jobs whose processes have all ended, and their folders once
// empty. Keeps `own`, the newest `keep` jobs of several ranks and the newest `keep` of one rank. A
// process of another boot or pid namespace counts as alive until its file's mtime is a week old.
// Returns the number of folders removed; never throws.
int remove_dead_jobs(const std::string& base, const std::string& own, int keep) noexcept;

}  // namespace oddrank::trace
