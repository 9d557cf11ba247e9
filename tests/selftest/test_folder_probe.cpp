// A separate process tries a folder and leaves nothing behind; also under sanitizers.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "selftest/folder_probe.hpp"

namespace oddrank::selftest {
namespace {

// In memory: on a busy disk a child may outlast the test's wait.
class FolderProbe : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_ = "/dev/shm/oddrank-probe-XXXXXX";
};

TEST_F(FolderProbe, AFileThatAnotherProbeRemovesInBetweenIsNoError) {
  const std::vector<std::string> same(4, folder_);
  for (const auto& result : probe_folders(same, ".test", 20.0, 600)) {
    EXPECT_EQ(result.error, 0);
    EXPECT_EQ(result.seconds[0].size(), 600U);
  }
}

TEST_F(FolderProbe, WithoutTimeTheChildIsEndedAndReaped) {
  const auto results = probe_folders({folder_}, ".test", 0.0, 1'000'000);
  EXPECT_TRUE(results.at(0).hangs);
  // Without a free core it takes longer to end than the probe waits.
  const pid_t left = results.at(0).left;
  if (left != 0) {
    EXPECT_EQ(::waitpid(left, nullptr, 0), left);
  }
}

}  // namespace
}  // namespace oddrank::selftest
