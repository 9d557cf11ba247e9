// A separate process tries a folder and leaves nothing behind; also under sanitizers.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "selftest/folder_probe.hpp"

namespace oddrank::selftest {
namespace {

class FolderProbe : public testing::Test {
 protected:
  void SetUp() override { make_in(testing::TempDir()); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void make_in(const std::string& root) {
    std::string pattern = root + "oddrank-probe-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  std::string folder_;
};

TEST_F(FolderProbe, EveryStepOfEveryRepeatIsTimed) {
  const auto results = probe_folders({folder_, folder_}, ".oddrank-test", 20.0, 3);
  ASSERT_EQ(results.size(), 2U);
  for (const FolderResult& result : results) {
    EXPECT_EQ(result.stopped_at, kFolderSteps.size());
    EXPECT_FALSE(result.hangs);
    EXPECT_EQ(result.left, 0);
    for (const auto& seconds : result.seconds) EXPECT_EQ(seconds.size(), 3U);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FolderProbe, TheStepThatFailedIsNamedWithItsError) {
  const auto results = probe_folders({folder_ + "/missing"}, ".oddrank-test", 20.0, 1);
  EXPECT_EQ(results.at(0).stopped_at, 0U);
  EXPECT_EQ(results.at(0).error, ENOENT);
}

// In memory: on a busy disk the child may outlast the test's wait.
class FolderProbeInMemory : public FolderProbe {
 protected:
  void SetUp() override { make_in("/dev/shm/"); }
};

TEST_F(FolderProbeInMemory, WithoutTimeTheChildIsEndedAndReaped) {
  const auto results = probe_folders({folder_}, ".oddrank-test", 0.0, 1'000'000);
  EXPECT_TRUE(results.at(0).hangs);
  // Without a free core it takes longer to end than the probe waits.
  const pid_t left = results.at(0).left;
  if (left != 0) {
    EXPECT_EQ(::waitpid(left, nullptr, 0), left);
  }
}

}  // namespace
}  // namespace oddrank::selftest
