// Finds oddrank's records in a folder, makes and removes them.
#include "trace/write/record_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "os/clock.hpp"
#include "os/error.hpp"
#include "os/private_folder.hpp"
#include "os/proc.hpp"
#include "trace/format/format.hpp"

namespace oddrank::trace {
namespace {

constexpr std::uint64_t kShare = 16;
// Ranks that start together count each other's files. After a second they go on without the lock,
// and at once if the file system has no locks (NFS).
constexpr int kLockMs = 1000;
constexpr std::size_t kKeepDead = 3;
constexpr std::size_t kRoomyBytes = 1024 * kChildBytes;
constexpr std::int64_t kForgotten = std::int64_t{7} * 24 * 3600;  // seconds
constexpr int kMostInterrupts = 1000;
constexpr const char* kSuffix = ".trace";

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

// Lists the names in a folder, except those that begin with a dot.
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

// The parts of a record's file name.
struct RecordName {
  RecordOwner owner;
  std::uint32_t pid = 0;
  std::uint64_t start_time = 0;
};

std::string file_name_of(const RecordName& name) {
  return (name.owner.is_child ? "child" : "rank") + std::to_string(name.owner.rank) + "-" +
         std::to_string(name.pid) + "-" + std::to_string(name.start_time) + kSuffix;
}

std::optional<RecordName> parse_name(const std::string& text) {
  RecordName name;
  name.owner.is_child = text.starts_with("child");
  const char* const format = name.owner.is_child ? "child%d-%u-%llu" : "rank%d-%u-%llu";
  unsigned long long start = 0;
  if (std::sscanf(text.c_str(), format, &name.owner.rank, &name.pid, &start) != 3) return {};
  name.start_time = start;
  // sscanf() accepts spaces, signs, leading zeros and trailing text: compare.
  if (file_name_of(name) != text) return {};
  return name;
}

// A record that oddrank wrote into the folder where it was found.
struct Record {
  std::string file;
  RecordName name;
  std::int64_t changed_ns = 0;
  bool is_alive = false;
  bool of_several_ranks = false;
};

// When the record was last written, as far as its file and its clocks tell: writes to the mapping
// of a file on tmpfs do not change its time.
std::int64_t last_change_ns(const Header& header, const struct stat& entry) {
  std::int64_t last = entry.st_mtim.tv_sec * 1'000'000'000LL + entry.st_mtim.tv_nsec;
  for (const ClockPair& pair : header.clocks) {
    last = std::max(last, static_cast<std::int64_t>(pair.realtime_ns.load()));
  }
  return last;
}

bool is_alive(const Header& header, std::int64_t changed_ns) {
  if (header.process.pid_namespace != pid_namespace() || !is_this_boot(text_of(header.boot_id))) {
    return changed_ns / 1'000'000'000 + kForgotten > clock_ns(CLOCK_REALTIME) / 1'000'000'000;
  }
  const ProcStat stat = read_stat(static_cast<pid_t>(header.process.pid));
  return stat.state != 0 && stat.start_time == header.process.start_time;
}

// Opens a file of this user that has a record's name; empty for others.
Fd open_own(int folder, const std::string& file, struct stat& entry) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Fd fd(parse_name(file) ? ::openat(folder, file.c_str(), kFlags) : -1);
  const bool is_own =
      fd && ::fstat(fd.get(), &entry) == 0 && S_ISREG(entry.st_mode) && entry.st_uid == ::geteuid();
  return is_own ? std::move(fd) : Fd();
}

// Returns the record named `file` in the folder of `job`, if oddrank made it there.
std::optional<Record> find_record(int folder, const std::string& job, const std::string& file) {
  struct stat entry {};
  const Fd fd = open_own(folder, file, entry);
  HeaderCopy copy;
  const Header& header = *copy;
  if (!fd || ::pread(fd.get(), copy.bytes.data(), sizeof copy.bytes, 0) != sizeof copy.bytes ||
      !fault_of(header, static_cast<std::uint64_t>(entry.st_size)).empty()) {
    return {};
  }
  char made_in[sizeof header.job];
  set_text(made_in, job);
  const RecordOwner owner{header.process.rank, header.process.is_child != 0};
  const std::optional<RecordName> name = parse_name(file);
  if (owner != name->owner || header.process.pid != name->pid ||
      header.process.start_time != name->start_time ||
      std::memcmp(made_in, header.job, sizeof made_in) != 0) {
    return {};
  }
  const std::int64_t changed = last_change_ns(header, entry);
  return Record{file, *name, changed, is_alive(header, changed), header.process.world > 1};
}

// Removes a record, if its file is still a record of a dead process.
void remove_record(int folder, const std::string& job, const Record& record) {
  const auto now = find_record(folder, job, record.file);
  if (now && !now->is_alive) ::unlinkat(folder, record.file.c_str(), 0);
}

// Returns a record's size on disk, also before its header is written; 0 for other files.
std::uint64_t record_bytes(int folder, const std::string& file) {
  struct stat entry {};
  const Fd fd = open_own(folder, file, entry);
  char magic[sizeof kMagic] = {};
  if (!fd || ::pread(fd.get(), magic, sizeof magic, 0) != sizeof magic) return 0;
  constexpr char kNotYet[sizeof kMagic] = {};
  const bool ours = std::memcmp(magic, kMagic, sizeof magic) == 0 ||
                    std::memcmp(magic, kNotYet, sizeof magic) == 0;
  return ours ? static_cast<std::uint64_t>(entry.st_blocks) * 512 : 0;
}

// Returns the bytes on disk of the records of all jobs in `base`.
std::uint64_t bytes_in(int base) {
  std::uint64_t sum = 0;
  for (const std::string& job : list(base)) {
    const Fd folder = open_folder(base, job);
    if (!folder) continue;
    for (const std::string& file : list(folder.get())) sum += record_bytes(folder.get(), file);
  }
  return sum;
}

// The bytes of a file system; nothing if they are not known.
struct Space {
  std::uint64_t whole = 0, used = 0, free = 0;

  explicit Space(int folder) noexcept {
    struct statvfs system {};
    if (::fstatvfs(folder, &system) != 0) return;
    whole = std::uint64_t{system.f_blocks} * system.f_frsize;
    used = whole - std::uint64_t{system.f_bfree} * system.f_frsize;
    free = std::uint64_t{system.f_bavail} * system.f_frsize;
  }
  // Whether all that is stored there, with these bytes, is within oddrank's share: no record needs
  // to be looked at then. A forked child asks at its first event.
  bool is_roomy(std::size_t bytes) const noexcept {
    return used + bytes <= whole / kShare && bytes <= free / 2;
  }
};

// Returns the largest of bytes, bytes/2, ... that fits the budget and half of the free space; 0 if
// none does.
std::size_t fitting(int base, std::size_t bytes, std::uint64_t small_bytes, bool last) {
  const Space space(base);
  if (space.whole < small_bytes && !last) return 0;
  if (space.is_roomy(bytes)) return bytes;
  const std::uint64_t taken = bytes_in(base);
  const std::uint64_t budget = space.whole / kShare;
  const std::uint64_t room = std::min(budget > taken ? budget - taken : 0, space.free / 2);
  while (bytes >= kFewestBytes && bytes > room) bytes /= 2;
  return bytes >= kFewestBytes ? bytes : 0;
}

// Removes this owner's records of dead processes, except the newest three.
void prune(int folder, const std::string& job, RecordOwner owner) {
  std::vector<Record> dead;
  for (const std::string& file : list(folder)) {
    const auto name = parse_name(file);
    if (!name || name->owner != owner) continue;
    // Sixty DataLoader workers that begin at once must not read each other's records.
    if (::kill(static_cast<pid_t>(name->pid), 0) == 0) continue;
    auto record = find_record(folder, job, file);
    if (record && !record->is_alive) dead.push_back(*std::move(record));
  }
  std::ranges::sort(dead, std::greater(), &Record::changed_ns);
  for (std::size_t i = kKeepDead; i < dead.size(); ++i) remove_record(folder, job, dead[i]);
}

// posix_fallocate() fails with EINTR when a signal arrives; profilers send many.
int reserve(int file, std::size_t bytes) noexcept {
  int error = EINTR;
  for (int i = 0; i < kMostInterrupts && error == EINTR; ++i) {
    error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  }
  return error;
}

NewRecordFile make_in(const std::string& base_path, const std::string& job, RecordOwner owner,
                      std::size_t wanted, std::uint64_t small_bytes, bool last) {
  const Fd base = open_private_folder(base_path);
  // A child's parent keeps the job's folder; and where there is much room, siblings need not count
  // each other's files.
  if (!owner.is_child || !Space(base.get()).is_roomy(kRoomyBytes))
    lock_exclusively(base.get(), Deadline::after_ms(kLockMs));
  if (const Fd old = open_folder(base.get(), job)) prune(old.get(), job, owner);
  const std::size_t bytes = fitting(base.get(), wanted, small_bytes, last);
  if (bytes == 0) throw Error(base_path + ": no room for a record file");
  const Fd folder = open_private_folder(base_path + "/" + job);
  const pid_t pid = ::getpid();
  const std::string name =
      file_name_of({owner, static_cast<std::uint32_t>(pid), read_stat(pid).start_time});
  // A process that called exec() may have made this file before.
  if (record_bytes(folder.get(), name) != 0) ::unlinkat(folder.get(), name.c_str(), 0);
  NewRecordFile made{Fd(), bytes, base_path + "/" + job + "/" + name};
  made.file = open_private_file(folder.get(), name, O_RDWR | O_CREAT | O_EXCL);
  if (const int error = reserve(made.file.get(), bytes); error != 0) {
    ::unlinkat(folder.get(), name.c_str(), 0);
    throw SystemError("posix_fallocate " + made.path, error);
  }
  return made;
}

struct DeadJob {
  std::string name;
  std::int64_t changed_ns;
  std::vector<Record> records;
};

// Returns the job in that folder, if it has records and all their processes are dead.
std::optional<DeadJob> find_dead_job(int base, const std::string& name) {
  const Fd folder = open_folder(base, name);
  struct stat entry {};
  if (!folder || ::fstat(folder.get(), &entry) != 0) return {};
  DeadJob job{name, entry.st_mtim.tv_sec * 1'000'000'000LL + entry.st_mtim.tv_nsec, {}};
  for (const std::string& file : list(folder.get())) {
    if (auto record = find_record(folder.get(), name, file)) {
      job.records.push_back(*std::move(record));
    }
  }
  if (job.records.empty() || std::ranges::any_of(job.records, &Record::is_alive)) return {};
  return job;
}

// Removes all jobs but the newest `keep`. Returns the number of folders removed.
int remove_oldest(int base, std::vector<DeadJob> jobs, int keep) {
  int removed = 0;
  std::ranges::sort(jobs, std::greater(), &DeadJob::changed_ns);
  for (std::size_t i = static_cast<std::size_t>(std::max(keep, 0)); i < jobs.size(); ++i) {
    const Fd folder = open_folder(base, jobs[i].name);
    if (!folder) continue;
    for (const Record& record : jobs[i].records) {
      remove_record(folder.get(), jobs[i].name, record);
    }
    ::unlinkat(folder.get(), "states.json", 0);  // of `oddrank run`
    // Fails, as intended, if the user or a restarted job has files in it.
    removed += ::unlinkat(base, jobs[i].name.c_str(), AT_REMOVEDIR) == 0 ? 1 : 0;
  }
  return removed;
}

}  // namespace

NewRecordFile make_record_file(const std::vector<std::string>& bases, const std::string& job,
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
    // A job that restarts under its name waits for us.
    lock_exclusively(base.get(), Deadline::after_ms(kLockMs));
    // Counted separately: trial runs of one rank must not push out the record of a training.
    std::vector<DeadJob> of_one_rank;
    std::vector<DeadJob> of_several_ranks;
    for (const std::string& name : list(base.get())) {
      if (name == own) continue;
      auto job = find_dead_job(base.get(), name);
      if (!job) continue;
      // Use the world size, not the file count: with one rank per node a large job has one file
      // here.
      const bool several = std::ranges::any_of(job->records, &Record::of_several_ranks);
      (several ? of_several_ranks : of_one_rank).push_back(*std::move(job));
    }
    removed += remove_oldest(base.get(), std::move(of_one_rank), keep);
    removed += remove_oldest(base.get(), std::move(of_several_ranks), keep);
  } catch (const std::exception&) {
    // Ignore errors: the next arm() tries again.
  }
  return removed;
}

}  // namespace oddrank::trace
