// Makes record files within their budget and removes those of jobs that are gone.
#include "trace/record/place.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/private_folder.hpp"
#include "base/proc_stat.hpp"
#include "trace/record/format.hpp"
#include "trace/record/layout.hpp"

namespace oddrank::trace {
namespace {

constexpr std::uint64_t kShare = 16;
constexpr int kLockMs = 1000;
constexpr std::size_t kKeepDead = 3;  // records of an owner whose processes have ended
constexpr std::int64_t kForgotten = std::int64_t{7} * 24 * 3600;  // seconds
constexpr const char* kSuffix = ".trace";

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

// The names in a folder, without those that begin with a dot.
std::vector<std::string> list(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  const Folder entries(::fdopendir(copy), &::closedir);
  if (!entries) {
    ::close(copy);
    return names;
  }
  while (const dirent* entry = ::readdir(entries.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  return names;
}

Fd open_folder(int parent, const std::string& name) {
  return Fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Bytes that the jobs' files in `base` take; sparse files count with what they really have.
std::uint64_t bytes_in(int base) {
  std::uint64_t sum = 0;
  for (const std::string& job : list(base)) {
    const Fd folder = open_folder(base, job);
    if (!folder) continue;
    for (const std::string& name : list(folder.get())) {
      struct stat entry {};
      if (::fstatat(folder.get(), name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) == 0) {
        sum += static_cast<std::uint64_t>(entry.st_blocks) * 512;
      }
    }
  }
  return sum;
}

// Ranks that start together must see each other's files. Who can't have the lock in time goes on.
void lock_base(int base) noexcept {
  const Deadline deadline = Deadline::after_ms(kLockMs);
  while (::flock(base, LOCK_EX | LOCK_NB) != 0 && !deadline.passed()) {
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

// The largest size of bytes, bytes/2, ... that fits the budget; 0 where none does.
std::size_t fitting(int base, std::size_t bytes, std::uint64_t small_bytes, bool last) {
  struct statvfs system {};
  if (::fstatvfs(base, &system) != 0) return 0;
  const std::uint64_t whole = std::uint64_t{system.f_blocks} * system.f_frsize;
  const std::uint64_t free = std::uint64_t{system.f_bavail} * system.f_frsize;
  if (whole < small_bytes && !last) return 0;
  const std::uint64_t taken = bytes_in(base);
  const std::uint64_t budget = whole / kShare;
  const std::uint64_t room = std::min(budget > taken ? budget - taken : 0, free / 2);
  while (bytes >= kFewestBytes && bytes > room) bytes /= 2;
  return bytes >= kFewestBytes ? bytes : 0;
}

std::string prefix_of(RecordOwner owner) {
  return (owner.is_child ? "child" : "rank") + std::to_string(owner.rank) + "-";
}

std::string file_name(RecordOwner owner) {
  const pid_t pid = ::getpid();
  return prefix_of(owner) + std::to_string(pid) + "-" + std::to_string(read_stat(pid).start_time) +
         kSuffix;
}

struct HeaderBytes {
  alignas(Header) std::array<unsigned char, sizeof(Header)> bytes{};
  const Header& header() const noexcept { return *reinterpret_cast<const Header*>(bytes.data()); }
};

// Of a record that we can read; none of any other file.
std::unique_ptr<HeaderBytes> read_header(int folder, const std::string& name) {
  auto read = std::make_unique<HeaderBytes>();
  const Fd file(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const auto size = static_cast<ssize_t>(read->bytes.size());
  if (!file || ::pread(file.get(), read->bytes.data(), read->bytes.size(), 0) != size) return {};
  const Header& header = read->header();
  const bool known = std::memcmp(header.magic, kMagic, sizeof kMagic) == 0 &&
                     header.version >= kOldestVersion && header.version <= kVersion;
  return known ? std::move(read) : nullptr;
}

// Whether the record says that its pid means nothing here: it is of another machine, another boot
// or another pid namespace.
bool is_from_elsewhere(int folder, const std::string& name) {
  const auto read = read_header(folder, name);
  if (!read) return false;
  const Header& header = read->header();
  const std::string_view boot(header.boot_id, ::strnlen(header.boot_id, sizeof header.boot_id));
  return header.pid_namespace != pid_namespace() || boot != boot_id();
}

// Whether a job of these files has had several ranks, here or on other hosts.
bool has_ranks(int folder, const std::vector<std::string>& files) {
  return std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    const auto read = read_header(folder, file);
    return read && read->header().world > 1;
  });
}

std::int64_t changed_ns(int folder, const std::string& name) noexcept {
  struct stat entry {};
  if (::fstatat(folder, name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  return entry.st_mtim.tv_sec * 1'000'000'000LL + entry.st_mtim.tv_nsec;
}

// "rank3-4711-98765.trace" -> whether that process lives; what is not such a name is no process.
bool lives(int folder, const std::string& name) {
  int rank = 0;
  int pid = 0;
  unsigned long long start = 0;
  if (std::sscanf(name.c_str(), "%*[a-z]%d-%d-%llu.trace", &rank, &pid, &start) != 3) return false;
  if (is_from_elsewhere(folder, name)) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return changed_ns(folder, name) / 1'000'000'000 + kForgotten > now.tv_sec;
  }
  const ProcStat stat = read_stat(pid);
  return stat.state != 0 && stat.start_time == start;
}

// Removes the oldest records of this owner whose processes have ended.
void prune(int folder, RecordOwner owner) {
  std::vector<std::pair<std::int64_t, std::string>> dead;
  for (const std::string& name : list(folder)) {
    if (!name.starts_with(prefix_of(owner)) || lives(folder, name)) continue;
    dead.emplace_back(changed_ns(folder, name), name);
  }
  std::sort(dead.begin(), dead.end(), std::greater<>());
  for (std::size_t i = kKeepDead; i < dead.size(); ++i) {
    ::unlinkat(folder, dead[i].second.c_str(), 0);
  }
}

RecordPlace make_in(const std::string& base_path, const std::string& job, RecordOwner owner,
                    std::size_t wanted, std::uint64_t small_bytes, bool last) {
  const Fd base = open_private_folder(base_path);
  lock_base(base.get());
  if (const Fd old = open_folder(base.get(), job)) prune(old.get(), owner);
  const std::size_t bytes = fitting(base.get(), wanted, small_bytes, last);
  if (bytes == 0) throw Error(base_path + ": no room for a record file");
  const Fd folder = open_private_folder(base_path + "/" + job);
  const std::string name = file_name(owner);
  // Of this very process, before it called exec().
  ::unlinkat(folder.get(), name.c_str(), 0);
  RecordPlace place{Fd(), bytes, base_path + "/" + job + "/" + name};
  place.file = open_private_file(folder.get(), name, O_RDWR | O_CREAT | O_EXCL);
  if (const int error = ::posix_fallocate(place.file.get(), 0, static_cast<off_t>(bytes));
      error != 0) {
    ::unlinkat(folder.get(), name.c_str(), 0);
    throw SystemError("posix_fallocate " + place.path, error);
  }
  return place;
}

struct Job {
  std::string name;
  std::int64_t changed;
};

// The oldest ones, but for the last `keep`.
void remove_jobs(int base, std::vector<Job> jobs, int keep, int& removed) {
  std::sort(jobs.begin(), jobs.end(),
            [](const Job& a, const Job& b) { return a.changed > b.changed; });
  for (std::size_t i = static_cast<std::size_t>(std::max(keep, 0)); i < jobs.size(); ++i) {
    const Fd folder = open_folder(base, jobs[i].name);
    for (const std::string& file : list(folder.get())) ::unlinkat(folder.get(), file.c_str(), 0);
    removed += ::unlinkat(base, jobs[i].name.c_str(), AT_REMOVEDIR) == 0 ? 1 : 0;
  }
}

}  // namespace

RecordPlace make_record_file(const std::vector<std::string>& bases, const std::string& job,
                             RecordOwner owner, std::size_t bytes, std::uint64_t small_bytes) {
  std::string refused;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    try {
      return make_in(bases[i], job, owner, bytes, small_bytes, i + 1 == bases.size());
    } catch (const Error& error) {
      refused += (refused.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw Error("no record file can be made: " + refused);
}

int remove_dead_jobs(const std::string& base_path, const std::string& own, int keep) noexcept {
  int removed = 0;
  try {
    const Fd base = open_private_folder(base_path);
    std::vector<Job> dead[2];  // of one process, of several ranks: a try-out is no reason to forget
                               // a training
    for (const std::string& name : list(base.get())) {
      const Fd folder = open_folder(base.get(), name);
      struct stat entry {};
      if (!folder || name == own || ::fstat(folder.get(), &entry) != 0) continue;
      const std::vector<std::string> files = list(folder.get());
      // A folder without record files is another subject's.
      const bool ours = std::any_of(files.begin(), files.end(), [](const std::string& file) {
        return file.size() > 6 && file.ends_with(kSuffix);
      });
      const bool runs = std::any_of(files.begin(), files.end(), [&](const std::string& file) {
        return lives(folder.get(), file);
      });
      if (!ours || runs) continue;
      const std::int64_t changed = entry.st_mtim.tv_sec * 1'000'000'000LL + entry.st_mtim.tv_nsec;
      dead[has_ranks(folder.get(), files) ? 1 : 0].push_back({name, changed});
    }
    for (std::vector<Job>& jobs : dead) remove_jobs(base.get(), std::move(jobs), keep, removed);
  } catch (const std::exception&) {
    // Clearing up is a courtesy: the next arm() tries again.
  }
  return removed;
}

}  // namespace oddrank::trace
