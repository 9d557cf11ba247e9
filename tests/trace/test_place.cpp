// Record files stay within their budget, take the next folder where one is full, and are cleared
// up.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "base/proc_stat.hpp"
#include "trace/record/format.hpp"
#include "trace/record/layout.hpp"
#include "trace/record/place.hpp"

namespace oddrank::trace {
namespace {

namespace fs = std::filesystem;

class RecordPlaces : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/oddrank-place-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root = name;
  }
  void TearDown() override { fs::remove_all(root); }
  // The folder of a job whose only process is `pid` with this start time.
  void leave_job(const std::string& name, pid_t pid, std::uint64_t start) const {
    fs::create_directories(root / name);
    std::ofstream(root / name /
                  ("rank0-" + std::to_string(pid) + "-" + std::to_string(start) + ".trace"));
  }

  fs::path root;
};

TEST_F(RecordPlaces, AFileHasItsRoomAndOnlyItsUserReadsIt) {
  const RecordPlace place = make_record_file({root / "base"}, "job", {3}, kRankBytes, 0);
  struct stat entry {};
  ASSERT_EQ(::fstat(place.file.get(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0600U);
  EXPECT_GE(static_cast<std::size_t>(entry.st_blocks) * 512, kRankBytes);
  EXPECT_EQ(place.bytes, kRankBytes);
  EXPECT_TRUE(place.path.starts_with((root / "base" / "job" / "rank3-").string()));
  EXPECT_EQ(make_record_file({root / "base"}, "job", {3}, kRankBytes, 0).path, place.path)
      << "one file a process, also after exec()";
}

TEST_F(RecordPlaces, ASmallFileSystemIsLeftAloneWhereThereIsAnother) {
  const std::uint64_t all = ~std::uint64_t{0};
  const RecordPlace place =
      make_record_file({root / "small", root / "other"}, "job", {0, true}, kChildBytes, all);
  EXPECT_TRUE(place.path.starts_with((root / "other").string()));
}

// In a mount namespace of its own: exit code 0 if all is as it should be.
int fill_small_tmpfs(const fs::path& folder) {
  fs::create_directories(folder);
  if (::unshare(CLONE_NEWNS) != 0) return 77;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64m,mode=700") != 0) return 77;
  // A sixteenth of 64 MiB: of ranks that start one after the other the first takes all.
  const RecordPlace first = make_record_file({folder}, "job", {0}, kRankBytes, 0);
  if (first.bytes > kRankBytes || first.bytes < kRankBytes / 2) return 1;
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

TEST_F(RecordPlaces, AllFilesTogetherTakeASixteenthOfTheFileSystem) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(fill_small_tmpfs(root / "shm"));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no right to mount here";
  EXPECT_EQ(status, 0);
}

TEST_F(RecordPlaces, DeadJobsGoButTheLastOnesAndWhoLivesStays) {
  for (int i = 0; i < 5; ++i) {
    leave_job("dead" + std::to_string(i), 1 << 22, 1);
    fs::last_write_time(root / ("dead" + std::to_string(i)),
                        fs::file_time_type::clock::now() - std::chrono::hours(10 - i));
  }
  leave_job("alive", ::getpid(), read_stat(::getpid()).start_time);
  leave_job("used-again", ::getpid(), 1);
  leave_job("own", 1 << 22, 1);
  leave_job("of-another-host", 1 << 22, 1);
  {
    auto header = std::make_unique<Header>();
    std::memcpy(header->magic, kMagic, sizeof kMagic);
    header->version = kVersion;
    set_text(header->boot_id, "another");
    std::ofstream(root / "of-another-host" / ("rank0-" + std::to_string(1 << 22) + "-1.trace"))
        .write(reinterpret_cast<const char*>(header.get()), sizeof(Header));
  }
  fs::create_directories(root / "of-another-subject");
  fs::permissions(root, fs::perms::owner_all);
  EXPECT_EQ(remove_dead_jobs(root, "own", 3), 3);
  for (const char* kept :
       {"dead3", "dead4", "used-again", "alive", "own", "of-another-subject", "of-another-host"}) {
    EXPECT_TRUE(fs::exists(root / kept)) << kept;
  }
}

TEST_F(RecordPlaces, JobsOfOneProcessPushOutNoJobOfSeveralRanks) {
  fs::permissions(root, fs::perms::owner_all);
  const auto age = [this](const std::string& name, int hours) {
    fs::last_write_time(root / name, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  auto header = std::make_unique<Header>();
  std::memcpy(header->magic, kMagic, sizeof kMagic);
  header->pid_namespace = pid_namespace();
  set_text(header->boot_id, boot_id());
  for (int i = 0; i < 5; ++i) {
    const std::string many = "many" + std::to_string(i);
    const std::string one = "one" + std::to_string(i);
    fs::create_directories(root / many);
    // A rank a node: what this host has of it is one file. The first is of an older version.
    header->version = i == 2 ? kOldestVersion : kVersion;
    header->world = 8;
    std::ofstream(root / many / ("rank5-" + std::to_string(1 << 22) + "-1.trace"))
        .write(reinterpret_cast<const char*>(header.get()), sizeof(Header));
    leave_job(one, 1 << 22, 1);
    age(many, 50 - i);
    age(one, 10 - i);
  }
  EXPECT_EQ(remove_dead_jobs(root, "own", 3), 4);
  for (const char* kept : {"many2", "many3", "many4", "one2", "one3", "one4"}) {
    EXPECT_TRUE(fs::exists(root / kept)) << kept;
  }
}

TEST_F(RecordPlaces, OfAnOwnersDeadTheLastFewStayAndOthersAreLeftAlone) {
  const auto base = root / "base";
  fs::create_directories(base);
  fs::permissions(base, fs::perms::owner_all);
  make_record_file({base}, "job", {7}, kChildBytes, 0);
  for (int i = 0; i < 6; ++i) {
    for (const char* owner : {"child7-", "rank7-", "child8-"}) {
      const auto file = base / "job" / (owner + std::to_string((1 << 22) + i) + "-1.trace");
      std::ofstream{file};
      fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(10 - i));
    }
  }
  make_record_file({base}, "job", {7, true}, kChildBytes, 0);
  int count[3] = {};
  for (const auto& entry : fs::directory_iterator(base / "job")) {
    const std::string name = entry.path().filename();
    count[0] += name.starts_with("child7-") ? 1 : 0;
    count[1] += name.starts_with("rank7-") ? 1 : 0;
    count[2] += name.starts_with("child8-") ? 1 : 0;
  }
  EXPECT_EQ(count[0], 3 + 1);
  EXPECT_EQ(count[1], 6 + 1);
  EXPECT_EQ(count[2], 6);
}

}  // namespace
}  // namespace oddrank::trace
