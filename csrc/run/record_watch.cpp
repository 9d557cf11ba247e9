// Finds a process's record and counts changes in its header.
#include "run/record_watch.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "os/error.hpp"
#include "os/fd.hpp"
#include "os/proc.hpp"
#include "trace/read/records.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::run {
namespace {

using trace::value_of;

// PREFIX and KINDS of oddrank/pauses.py.
constexpr std::string_view kPrefix = "oddrank:";
constexpr std::array<std::string_view, 3> kKinds{"switch ", "breakpoint ", "waits "};

// Returns whether a section's name notes a pause: oddrank:KIND SECONDS WHAT. The name may be a
// user's; pauses.py reads it by the same rules.
bool notes_pause(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  for (const std::string_view kind : kKinds) {
    if (!name.starts_with(kind)) continue;
    name.remove_prefix(kind.size());
    double seconds = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data(), end, seconds);
    const bool is_whole = stop == end || *stop == ' ';
    return error == std::errc{} && is_whole && std::isfinite(seconds) && seconds > 0;
  }
  return false;
}

// Calls `take` with the path and the record of each living process that a process has started.
// `paths`: where its own record may appear; theirs lie beside it. `since`: a start time, from which
// on others that it has started count too, if they issued collectives: ranks that have ended, or
// outlive it; and these ranks' children. 0: no others.
template <typename Take>
void each_child(const std::vector<std::string>& paths, pid_t parent, std::uint64_t since,
                const Take& take) {
  for (const std::filesystem::path path : paths) {
    const std::string name = path.filename();
    if (!name.starts_with("rank")) continue;
    const std::string begin = "child" + name.substr(4, name.find('-') - 3);  // for rank3-: child3-
    std::error_code failed;
    for (std::filesystem::directory_iterator at(path.parent_path(), failed), end;
         !failed && at != end; at.increment(failed)) {
      const std::string other = at->path().filename();
      pid_t pid = 0;
      if (!other.starts_with(begin)) continue;
      std::from_chars(other.data() + begin.size(), other.data() + other.size(), pid);
      const ProcStat stat = read_stat(pid);
      const bool is_below =
          stat.parent == parent || (since != 0 && read_stat(stat.parent).parent == parent);
      const bool lives = pid > 0 && is_below && !stat.is_zombie();
      if (!lives && since == 0) continue;
      Fd fd(::open(at->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
      if (!fd) continue;
      try {
        const trace::RecordFile file(std::move(fd), at->path());
        const std::uint64_t began = file.process().start_time;
        const bool is_own = file.process().parent_pid == static_cast<std::uint32_t>(parent);
        const bool is_rank = since != 0 && is_own && began >= since &&
                             value_of(file.header()->collectives_claimed) > 0;
        if ((lives && began == stat.start_time) || is_rank) take(at->path().native(), file);
      } catch (const Error&) {
        continue;
      }
    }
  }
}

}  // namespace

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
      marks_read_ = 0;
      paused_ = false;
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
  trace::HeaderCopy heads;
  try {
    heads = file_->header();
  } catch (const Error&) {
    return;  // cut: the last heads stay
  }
  // A step may be set back, by another epoch.
  const std::uint64_t step = heads.step().value_or(0), last = heads_.step().value_or(0);
  std::uint64_t moved =
      value_of(heads->collectives_claimed) - value_of(heads_->collectives_claimed);
  if (heads.step() != heads_.step()) moved += step > last ? step - last : 1;
  heads_ = heads;
  if (moved == 0) moved = moved_by_children();
  progress_ += moved;
  const bool is_new = stage_ == std::string_view("starting");
  bool paused = moved == 0 && paused_;
  // Marks are read only of a rank that stands still, and once.
  if (moved != 0) {
    marks_read_ = 0;
  } else if (value_of(heads_->marks_claimed) != marks_read_) {
    try {
      paused = is_paused();
      marks_read_ = value_of(heads_->marks_claimed);
    } catch (const Error&) {
      return;  // cut
    }
  }
  if (moved != 0 || is_new || paused != paused_) moved_ns_ = now;
  paused_ = paused;
  const bool is_quiet = now - moved_ns_ >= quiet_after_ns_;
  stage_ = paused_ ? "paused" : is_quiet ? "quiet" : "moving";
}

// Returns how far the processes that this one has started have come since the last call.
std::uint64_t RecordWatch::moved_by_children() {
  std::map<std::string, std::uint64_t> seen;
  std::uint64_t moved = 0;
  each_child(paths_, pid_, 0, [&](const std::string& path, const trace::RecordFile& file) {
    const trace::HeaderCopy heads = file.header();
    const std::uint64_t now = value_of(heads->collectives_claimed) + heads.step().value_or(0);
    seen[path] = now;
    if (const auto before = children_.find(path); before != children_.end()) {
      moved += now != before->second ? 1 : 0;
    }
  });
  children_ = std::move(seen);
  return moved;
}

// Returns whether a section that notes a pause has begun and not ended.
bool RecordWatch::is_paused() const {
  std::unordered_set<std::uint64_t> open;
  for (const trace::Mark& mark : trace::read_marks(*file_).list) {
    const bool begins = mark.kind == trace::MarkKind::kSectionBegin;
    if (begins && notes_pause(mark.text)) open.insert(mark.value);
    if (mark.kind == trace::MarkKind::kSectionEnd) open.erase(mark.value);
  }
  return !open.empty();
}

std::vector<std::string> records_of_children(const std::vector<std::string>& paths, pid_t parent,
                                             std::uint64_t since, std::size_t most) {
  std::vector<std::string> found;
  each_child(paths, parent, since, [&](const std::string&, const trace::RecordFile& file) {
    if (found.size() < most) found.push_back(trace::slim_record(file));
  });
  return found;
}

int RecordWatch::exit_code() const noexcept {
  if (heads_.end() == trace::End::kExited) return heads_.exit_code();
  const std::string_view raised = trace::text_of(heads_->raised);
  if (raised == "KeyboardInterrupt") return 128 + SIGINT;  // Python dies of the signal
  return raised.empty() ? -1 : 1;
}

}  // namespace oddrank::run
