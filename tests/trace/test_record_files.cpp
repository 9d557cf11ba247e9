// Record files stay within their budget, use the next folder if one is full, and are removed once
// their jobs are dead. Files that oddrank did not write are never touched.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../in_folder.hpp"
#include "../patience.hpp"
#include "os/clock.hpp"
#include "os/error.hpp"
#include "os/proc.hpp"
#include "trace/format/format.hpp"
#include "trace/write/record_files.hpp"

namespace oddrank::trace {
namespace {

namespace fs = std::filesystem;

constexpr pid_t kNoProcess = 1 << 22;  // above every possible pid

int flock_error = 0;
int flock_calls = 0;
int interrupted_reservations = 0;

class RecordFiles : public InFolder {
 protected:
  // A record as a process of this machine leaves it. `change` edits its header before it is
  // written.
  fs::path leave_record(
      const std::string& job, RecordOwner owner, pid_t pid, std::uint64_t start,
      const std::function<void(Header&)>& change = [](Header&) {}) const {
    const fs::path file = root / job /
                          ((owner.is_child ? "child" : "rank") + std::to_string(owner.rank) + "-" +
                           std::to_string(pid) + "-" + std::to_string(start) + ".trace");
    auto header = std::make_unique<Header>();
    std::memcpy(header->magic, kMagic, sizeof kMagic);
    header->version = kVersion;
    header->endian = kEndian;
    header->size = kPage;
    header->process.pid = static_cast<std::uint32_t>(pid);
    header->process.start_time = start;
    header->process.rank = owner.rank;
    header->process.world = 1;
    header->process.is_child = owner.is_child ? 1 : 0;
    header->process.pid_namespace = pid_namespace();
    set_text(header->boot_id, boot_id());
    set_text(header->job, job);
    change(*header);
    fs::create_directories(file.parent_path());
    std::ofstream(file).write(reinterpret_cast<const char*>(header.get()), sizeof(Header));
    fs::resize_file(file, kPage);
    return file;
  }
  // The folder of a job whose only process is `pid` with this start time.
  fs::path leave_job(const std::string& job, pid_t pid, std::uint64_t start) const {
    return leave_record(job, {}, pid, start);
  }
  static void age(const fs::path& path, int hours) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }

  const fs::path root = folder_;
};

TEST_F(RecordFiles, AFileHasItsRoomAndOnlyItsUserReadsIt) {
  const NewRecordFile place = make_record_file({root / "base"}, "job", {3}, kRankBytes, 0);
  struct stat entry {};
  ASSERT_EQ(::fstat(place.file.get(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0600U);
  EXPECT_GE(static_cast<std::size_t>(entry.st_blocks) * 512, kRankBytes);
  EXPECT_EQ(place.bytes, kRankBytes);
  EXPECT_TRUE(place.path.starts_with((root / "base" / "job" / "rank3-").string()));
  EXPECT_EQ(make_record_file({root / "base"}, "job", {3}, kRankBytes, 0).path, place.path)
      << "one file a process, also after exec()";
}

TEST_F(RecordFiles, ASmallFileSystemIsLeftAloneWhereThereIsAnother) {
  const std::uint64_t all = ~std::uint64_t{0};
  const NewRecordFile place =
      make_record_file({root / "small", root / "other"}, "job", {0, true}, kChildBytes, all);
  EXPECT_TRUE(place.path.starts_with((root / "other").string()));
}

// Runs in a separate mount namespace; returns exit code 0 if all is right.
int fill_small_tmpfs(const fs::path& folder) {
  fs::create_directories(folder);
  if (::unshare(CLONE_NEWNS) != 0) return 77;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64m,mode=700") != 0) return 77;
  // The user's own files don't count.
  fs::create_directories(folder / "job");
  for (const char* own : {"job/log.trace", "job/rank0-stdout.log", "rank0-1-2.trace"}) {
    std::ofstream(folder / own) << std::string(std::size_t{8} << 20, 'x');
  }
  // The budget is 1/16 of 64 MiB: the first rank that starts takes all of it.
  const NewRecordFile first = make_record_file({folder}, "job", {0}, kRankBytes, 0);
  if (first.bytes != kRankBytes) return 1;
  std::size_t sum = first.bytes;
  for (int rank = 1; rank < 40; ++rank) {
    try {
      sum += make_record_file({folder}, "job", {rank}, kRankBytes, 0).bytes;
    } catch (const Error&) {
      break;
    }
  }
  return sum <= (std::size_t{64} << 20) / 16 ? 0 : 2;
}

TEST_F(RecordFiles, AllFilesTogetherTakeASixteenthOfTheFileSystem) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(fill_small_tmpfs(root / "shm"));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no right to mount here";
  EXPECT_EQ(status, 0);
}

TEST_F(RecordFiles, DeadJobsGoButTheNewestAndThoseWithALivingProcessStay) {
  for (int i = 0; i < 5; ++i) {
    leave_job("dead" + std::to_string(i), kNoProcess, 1);
    std::ofstream(root / ("dead" + std::to_string(i)) / "states.json") << "{}";
    age(root / ("dead" + std::to_string(i)), 10 - i);
  }
  leave_job("alive", ::getpid(), read_stat(::getpid()).start_time);
  leave_job("used-again", ::getpid(), 1);
  leave_job("own", kNoProcess, 1);
  leave_record("of-another-host", {}, kNoProcess, 1,
               [](Header& header) { set_text(header.boot_id, "another"); });
  fs::create_directories(root / "of-another-subject");
  EXPECT_EQ(remove_dead_jobs(root, "own", 3), 3);
  for (const char* kept :
       {"dead3", "dead4", "used-again", "alive", "own", "of-another-subject", "of-another-host"}) {
    EXPECT_TRUE(fs::exists(root / kept)) << kept;
  }
}

TEST_F(RecordFiles, AJobInAnotherContainerThatHasRunForWeeksKeepsItsRecord) {
  const auto in_container = [](Header& header, std::int64_t hours_ago) {
    header.process.pid_namespace = pid_namespace() + 1;
    const auto now = std::chrono::system_clock::now() - std::chrono::hours(hours_ago);
    header.clocks[1].realtime_ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count());
  };
  const auto runs =
      leave_record("runs", {}, kNoProcess, 1, [&](Header& header) { in_container(header, 1); });
  const auto ended = leave_record("ended", {}, kNoProcess, 1,
                                  [&](Header& header) { in_container(header, 24 * 20); });
  age(runs, 24 * 30);
  age(ended, 24 * 30);
  EXPECT_EQ(remove_dead_jobs(root, "own", 0), 1);
  EXPECT_TRUE(fs::exists(runs));
  EXPECT_FALSE(fs::exists(ended));
}

TEST_F(RecordFiles, JobsOfOneProcessPushOutNoJobOfSeveralRanks) {
  for (int i = 0; i < 5; ++i) {
    const std::string many = "many" + std::to_string(i);
    const std::string one = "one" + std::to_string(i);
    // One rank per node: this host has only one file of the job.
    leave_record(many, {5}, kNoProcess, 1, [](Header& header) { header.process.world = 8; });
    leave_job(one, kNoProcess, 1);
    age(root / many, 50 - i);
    age(root / one, 10 - i);
  }
  EXPECT_EQ(remove_dead_jobs(root, "own", 3), 4);
  for (const char* kept : {"many2", "many3", "many4", "one2", "one3", "one4"}) {
    EXPECT_TRUE(fs::exists(root / kept)) << kept;
  }
}

TEST_F(RecordFiles, TheNewestDeadRecordsOfAnOwnerStayAndOtherOwnersAreLeftAlone) {
  make_record_file({root}, "job", {7}, kChildBytes, 0);
  for (int i = 0; i < 6; ++i) {
    for (const RecordOwner owner : {RecordOwner{7, true}, {7, false}, {8, true}}) {
      age(leave_record("job", owner, kNoProcess + i, 1), 10 - i);
    }
  }
  make_record_file({root}, "job", {7, true}, kChildBytes, 0);
  std::map<std::string, int> count;
  for (const auto& entry : fs::directory_iterator(root / "job")) {
    const std::string name = entry.path().filename();
    ++count[name.substr(0, name.find('-'))];
  }
  const std::map<std::string, int> left = {{"child7", 3 + 1}, {"rank7", 6 + 1}, {"child8", 6}};
  EXPECT_EQ(count, left);
}

// Files of the user that look like records.
TEST_F(RecordFiles, FilesThatOddrankDidNotWriteAreNeverTouched) {
  std::vector<fs::path> of_the_user;
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
    of_the_user.push_back(root / name);
  };
  const std::string begins_like_ours(std::begin(kMagic), std::end(kMagic));
  const std::string page(kPage, 'x');
  for (const std::string job : {"job", "dead", "profiles"}) {
    write(job + "/profile.trace", page);           // of some other tracer
    write(job + "/rank0-stdout.log", "loss 0.3");  // a launcher's redirected output
    write(job + "/rank0-4194304-1.trace", page);   // our name with other contents
    write(job + "/rank0-4194304-2.trace", "");     // ... with none
    write(job + "/rank0-4194304-3.trace", begins_like_ours + page);  // ... with a broken header
    write(job + "/rank0-4194304-01.trace", page);
    write(job + "/rank0-4194304-1.trace.bak", page);
    write(job + "/rank00-4194304-1.trace", page);
    write(job + "/deeper/rank0-4194304-1.trace", page);
    fs::create_directories(root / job / "rank0-4194304-4.trace");
    of_the_user.push_back(root / job / "rank0-4194304-4.trace");
    fs::create_symlink(root / "profiles" / "profile.trace", root / job / "rank0-4194304-5.trace");
    // Records that the user copied from another job's folder, or renamed.
    for (std::uint64_t i = 0; i < 4; ++i) {
      of_the_user.push_back(leave_record(job, {0}, kNoProcess, 10 + i,
                                         [](Header& header) { set_text(header.job, "other"); }));
      of_the_user.push_back(leave_record(job, {0}, kNoProcess, 20 + i,
                                         [](Header& header) { header.process.start_time = 5; }));
    }
  }
  // Our own dead records beside them go.
  std::vector<fs::path> ours = {leave_job("dead", kNoProcess, 1'000)};
  for (const int hours : {10, 9, 8, 7, 6}) {
    const auto start = 2'010U - static_cast<std::uint64_t>(hours);
    ours.push_back(leave_record("job", {0}, kNoProcess, start));
    age(ours.back(), hours);
  }
  age(root / "dead", 100);
  remove_dead_jobs(root, "job", 0);
  make_record_file({root}, "job", {0}, kChildBytes, 0);
  for (const fs::path& file : of_the_user) EXPECT_TRUE(fs::exists(file)) << file;
  for (const std::string job : {"job", "dead", "profiles"}) {
    EXPECT_TRUE(fs::is_symlink(root / job / "rank0-4194304-5.trace"));
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(fs::exists(ours[i])) << ours[i];
  for (std::size_t i = 3; i < 6; ++i) EXPECT_TRUE(fs::exists(ours[i])) << ours[i];
}

TEST_F(RecordFiles, AJobThatStartsAgainUnderItsNameKeepsItsRecord) {
  leave_job("job", kNoProcess, 1);
  // A rank holds the folder's lock while it makes its record.
  const Fd base(::open(root.c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_EQ(::flock(base.get(), LOCK_EX), 0);
  std::atomic<bool> done = false;
  // The cleaner waits a second for the lock: a look that comes later proves nothing.
  const Deadline waits = Deadline::after_ms(900);
  std::thread cleaner([&] {
    remove_dead_jobs(root, "another", 0);
    done = true;
  });
  const bool is_early = patience::until([&] { return done.load(); }, 0.1);
  const fs::path live = leave_job("job", ::getpid(), read_stat(::getpid()).start_time);
  const bool in_time = !waits.passed();
  ASSERT_EQ(::flock(base.get(), LOCK_UN), 0);
  cleaner.join();
  if (!in_time) GTEST_SKIP() << "this process got no core while the cleaner waited";
  EXPECT_FALSE(is_early);
  EXPECT_TRUE(fs::exists(live));
}

TEST_F(RecordFiles, AFileSystemWithoutLocksCostsNoWait) {
  flock_error = ENOLCK;
  flock_calls = 0;
  make_record_file({root}, "job", {0}, kChildBytes, 0);
  remove_dead_jobs(root, "another", 0);
  flock_error = 0;
  EXPECT_EQ(flock_calls, 2) << "who waits asks again and again";
}

TEST_F(RecordFiles, SignalsWhileRoomIsReservedChangeNothing) {
  interrupted_reservations = 20;
  EXPECT_EQ(make_record_file({root}, "job", {0}, kChildBytes, 0).bytes, kChildBytes);
  EXPECT_EQ(interrupted_reservations, 0);
}

}  // namespace
}  // namespace oddrank::trace

// Replaces libc's in the whole test program, for faults that no file system here has.
extern "C" int flock(int file, int operation) {
  if (oddrank::trace::flock_error != 0) {
    ++oddrank::trace::flock_calls;
    errno = oddrank::trace::flock_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, file, operation));
}
extern "C" int posix_fallocate(int file, off_t begin, off_t size) {
  if (oddrank::trace::interrupted_reservations > 0) {
    --oddrank::trace::interrupted_reservations;
    return EINTR;
  }
  return ::fallocate(file, 0, begin, size) == 0 ? 0 : errno;
}
