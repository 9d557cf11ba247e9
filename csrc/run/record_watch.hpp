// Follows the heads of one process's record: how far it has come, and since when it has not.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace/read/file.hpp"

namespace oddrank::run {

// Not thread-safe. look() reads the header; if the rank stands still, new marks too, and the
// headers of its child processes.
class RecordWatch {
 public:
  // `paths`: where the record of that process may appear. `quiet_ns`: the time without progress
  // after which it is quiet.
  RecordWatch(std::vector<std::string> paths, pid_t pid, std::uint64_t start_time,
              std::int64_t quiet_ns);

  // `now`: CLOCK_MONOTONIC. Opens the record once it is there, and again if the process made a new
  // one.
  void look(std::int64_t now);

  // "starting" (there is no record yet), "moving", "quiet", or "paused": it waits on purpose, and
  // has noted it (oddrank/pauses.py).
  const char* stage() const noexcept { return stage_; }
  // The number of the last step(); "" before the first.
  std::string step() const { return heads_.step() ? std::to_string(*heads_.step()) : ""; }
  // Grows with each step, and each begin and end of a collective; without any, with its child
  // processes' ones: a launcher in the script, such as mp.spawn.
  std::uint64_t progress() const noexcept { return progress_; }
  // Time since look() last saw progress, a pause's begin or end, or a new record; -1 without a
  // record.
  std::int64_t quiet_ns(std::int64_t now) const noexcept { return file_ ? now - moved_ns_ : -1; }
  // How the process ended, as it noted itself; -1: unknown.
  int exit_code() const noexcept;
  // Null without a record. A file that is removed stays readable.
  const trace::RecordFile* file() const noexcept { return file_ ? &*file_ : nullptr; }

 private:
  void find();
  std::uint64_t moved_by_children();
  bool is_paused() const;

  std::vector<std::string> paths_;
  pid_t pid_;
  std::uint64_t start_time_;
  std::int64_t quiet_after_ns_;
  std::optional<trace::RecordFile> file_;
  std::string path_;
  std::uint64_t inode_ = 0;
  trace::HeaderCopy heads_;
  const char* stage_ = "starting";
  std::uint64_t progress_ = 0;
  std::int64_t moved_ns_ = 0;
  bool paused_ = false;
  std::uint64_t marks_read_ = 0;                   // marks_claimed when paused_ was read
  std::map<std::string, std::uint64_t> children_;  // path of a record -> its counters
};

// Returns slim records of at most `most` living processes that a process has started. `paths`:
// where its own record may appear; theirs lie beside it. `since`: a start time, from which on
// others that it has started count too, if they issued collectives, and these processes' children;
// 0: none.
std::vector<std::string> records_of_children(const std::vector<std::string>& paths, pid_t parent,
                                             std::uint64_t since, std::size_t most);

}  // namespace oddrank::run
