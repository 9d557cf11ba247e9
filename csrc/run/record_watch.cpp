// Finds a process's record and counts what moves in its header.
#include "run/record_watch.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "os/error.hpp"
#include "os/fd.hpp"

namespace oddrank::run {

RecordWatch::RecordWatch(std::vector<std::string> paths, pid_t pid, std::uint64_t start_time,
                         std::int64_t quiet_ns)
    : paths_(std::move(paths)), pid_(pid), start_time_(start_time), quiet_after_ns_(quiet_ns) {}

// A process that arms itself again may make a new file of the same name.
void RecordWatch::find() {
  struct stat found {};
  if (file_ && (::stat(path_.c_str(), &found) != 0 || found.st_ino == inode_)) return;
  for (const std::string& path : paths_) {
    Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!fd || ::fstat(fd.get(), &found) != 0) continue;
    try {
      trace::RecordFile file(std::move(fd), path);
      if (file.process().pid != static_cast<std::uint32_t>(pid_) ||
          file.process().start_time != start_time_) {
        continue;
      }
      file_.emplace(std::move(file));
      path_ = path;
      inode_ = found.st_ino;
      heads_ = {};
      stage_ = "starting";  // look() sees that it moves
      return;
    } catch (const Error&) {
      continue;  // its process is filling the header
    }
  }
}

void RecordWatch::look(std::int64_t now) {
  find();
  if (!file_) return;
  trace::Counters heads;
  try {
    heads = file_->counters();
  } catch (const Error&) {
    return;  // cut: the last heads stay
  }
  // A step may be set back, by another epoch.
  const std::uint64_t step = heads.step.value_or(0), last = heads_.step.value_or(0);
  std::uint64_t moved = heads.collectives_claimed - heads_.collectives_claimed;
  if (heads.step != heads_.step) moved += step > last ? step - last : 1;
  heads_ = std::move(heads);
  progress_ += moved;
  const bool is_new = stage_ == std::string_view("starting");
  if (moved != 0 || is_new) moved_ns_ = now;
  stage_ = now - moved_ns_ < quiet_after_ns_ ? "moving" : "quiet";
}

int RecordWatch::exit_code() const noexcept {
  if (heads_.end == trace::End::kExited) return heads_.exit_code;
  return heads_.raised.empty() ? -1 : 1;
}

}  // namespace oddrank::run
