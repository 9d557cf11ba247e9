// Probes folders in child processes. The children are copies of a process with threads, forked
// without its handlers (OpenBLAS's ends its threads, torch has some): they only call the kernel.
#include "selftest/folder_probe.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "os/clock.hpp"
#include "os/error.hpp"
#include "os/fd.hpp"

namespace oddrank::selftest {
namespace {

constexpr std::size_t kSlots = 8;
constexpr time_t kOldSeconds = 3600;
constexpr std::size_t kBytes = 4096;
constexpr std::int64_t kReapMs = 200;

// A child's report after each step. Small enough to be atomic in a pipe.
struct Said {
  std::int64_t ns;
  std::int64_t error;
};

// ---- In the child: no allocation, no locks, nothing that throws.

void keep_only_as_stdin(int out) noexcept {
  // The launcher waits until no process holds its ranks' pipes: a child that cannot be killed must
  // not hold them.
  ::dup2(out, 0);
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, 1U, ~0U, 0) == 0) return;
#endif
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, rlim_t{1} << 16));
  for (int fd = 1; fd < end; ++fd) ::close(fd);
}

// Returns whether a killed run left the file.
bool is_left_over(const char* path) noexcept {
  struct stat seen {};
  if (::lstat(path, &seen) != 0) return false;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return S_ISREG(seen.st_mode) && seen.st_uid == ::geteuid() &&
         now.tv_sec - seen.st_mtime > kOldSeconds;
}

int create(const char* path) noexcept {
  constexpr int kFlags = O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC;
  const int file = ::open(path, kFlags, 0600);
  if (file >= 0 || errno != EEXIST) return file;
  // Its owner may remove it meanwhile: only a second open shows it.
  if (is_left_over(path)) ::unlink(path);
  return ::open(path, kFlags, 0600);
}

class Child {
 public:
  Child(const std::vector<std::string>& paths, int out) noexcept : paths_(paths), out_(out) {}

  // Runs one repeat. Returns false if a step failed.
  bool repeat() noexcept {
    began_ = monotonic_ns();
    std::size_t slot = 0;
    int file = -1;
    do {
      file = create(paths_[slot].c_str());
    } while (file < 0 && errno == EEXIST && ++slot < paths_.size());
    const char* path = paths_[std::min(slot, paths_.size() - 1)].c_str();
    if (!say(file >= 0)) return file >= 0 && undo(file, path);
    char block[kBytes];
    std::memset(block, 'o', sizeof block);
    if (!say(::write(file, block, sizeof block) == ssize_t{sizeof block}) ||
        !say(::fsync(file) == 0)) {
      return undo(file, path);
    }
    // Drops the page cache, so that the file system is read. A refusal is harmless.
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    std::memset(block, 0, sizeof block);
    const bool came = ::pread(file, block, sizeof block, 0) == ssize_t{sizeof block};
    const bool same = came && block[0] == 'o' && std::memcmp(block, block + 1, kBytes - 1) == 0;
    if (came && !same) errno = kReadsOther;
    if (!say(same)) return undo(file, path);
    if (!say(::close(file) == 0)) {
      ::unlink(path);
      return false;
    }
    return say(::unlink(path) == 0);
  }

 private:
  bool say(bool done) noexcept {
    // A write that was cut short sets no errno: the file system is full.
    const int error = done ? 0 : (errno != 0 ? errno : ENOSPC);
    const std::int64_t now = monotonic_ns();
    const Said said{now - began_, error};
    const bool heard = ::write(out_, &said, sizeof said) == ssize_t{sizeof said};
    began_ = monotonic_ns();
    errno = 0;
    return done && heard;
  }
  static bool undo(int file, const char* path) noexcept {
    ::unlink(path);
    ::close(file);
    return false;
  }

  const std::vector<std::string>& paths_;
  int out_;
  std::int64_t began_ = 0;
};

[[noreturn]] void be_child(const std::vector<std::string>& paths, int out, int repeats) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "oddrank-file");
  keep_only_as_stdin(out);
  errno = 0;
  Child child(paths, 0);
  for (int i = 0; i < repeats && child.repeat(); ++i) continue;
  ::_exit(0);
}

// ---- In the parent.

struct Running {
  pid_t pid = 0;
  Fd in;
  std::size_t steps = 0;  // done, in all repeats
};

Running start(const std::vector<std::string>& paths, int repeats) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw_errno("pipe to a file system's probe");
  Fd in(ends[0]);
  const Fd out(ends[1]);
  const long pid = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (pid < 0) throw_errno("fork a file system's probe");
  if (pid == 0) be_child(paths, out.get(), repeats);
  return {static_cast<pid_t>(pid), std::move(in)};
}

std::vector<std::string> slots_of(const std::string& stem) {
  std::vector<std::string> paths(kSlots, stem);
  for (std::size_t slot = 0; slot < kSlots; ++slot) paths[slot] += std::to_string(slot);
  return paths;
}

// Reads the child's reports. Returns false once it has ended.
bool hear(Running& child, FolderResult& result) {
  while (true) {
    Said said{};
    const ssize_t got = ::read(child.in.get(), &said, sizeof said);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got != ssize_t{sizeof said}) return false;
    if (said.error != 0) {
      result.error = static_cast<int>(said.error);
      return false;
    }
    const double seconds = static_cast<double>(said.ns) * 1e-9;
    result.seconds[child.steps++ % kFolderSteps.size()].push_back(seconds);
  }
}

bool reaped(pid_t pid, Deadline end) {
  while (true) {
    const pid_t got = ::waitpid(pid, nullptr, WNOHANG);
    if (got == pid || (got < 0 && errno != EINTR)) return true;
    if (end.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The last check begins after the end: this process may have stood still meanwhile.
void watch(std::vector<Running>& children, std::vector<FolderResult>& results, Deadline end) {
  for (bool last = false; !last;) {
    last = end.passed();
    std::vector<pollfd> open;
    for (const Running& child : children) {
      if (child.in) open.push_back({child.in.get(), POLLIN, 0});
    }
    if (open.empty()) return;
    ::poll(open.data(), open.size(), end.remaining_ms());
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (children[i].in && !hear(children[i], results[i])) children[i].in.reset();
    }
  }
}

}  // namespace

std::vector<FolderResult> probe_folders(const std::vector<std::string>& folders,
                                        const std::string& name, double seconds, int repeats) {
  std::vector<FolderResult> results(folders.size());
  std::vector<Running> children;
  for (const std::string& folder : folders) {
    std::string stem = folder;
    children.push_back(start(slots_of(stem.append("/").append(name).append("-")), repeats));
  }
  watch(children, results, Deadline::after_seconds(seconds));
  const std::size_t whole = static_cast<std::size_t>(repeats) * kFolderSteps.size();
  for (std::size_t i = 0; i < children.size(); ++i) {
    results[i].hangs = static_cast<bool>(children[i].in);
    if (results[i].hangs) ::kill(children[i].pid, SIGKILL);
    if (children[i].steps == whole) continue;
    results[i].stopped_at = children[i].steps % kFolderSteps.size();
    // The OOM killer ended it.
    if (!results[i].hangs && results[i].error == 0) results[i].error = ECANCELED;
  }
  const Deadline gone = Deadline::after_ms(kReapMs);
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (!reaped(children[i].pid, gone)) results[i].left = children[i].pid;
  }
  return results;
}

}  // namespace oddrank::selftest
