// The meeting point is only believed where nobody else could have written or read it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "control/meeting_point.hpp"

namespace oddrank::control {
namespace {

class MeetingPoint : public testing::Test {
 protected:
  MeetingPoint() {
    std::filesystem::create_directory(folder_);
    std::ofstream(path_) << "10.0.0.1:29511#secret";
    ::chmod(path_.c_str(), 0600);
  }
  ~MeetingPoint() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ = testing::TempDir() + "oddrank-meeting-" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/root";
};

TEST_F(MeetingPoint, GivesTheAddress) {
  EXPECT_EQ(read_meeting_point(path_), "10.0.0.1:29511#secret");
}

TEST_F(MeetingPoint, IsNothingWhereThereIsNone) {
  EXPECT_EQ(read_meeting_point(""), "");
  EXPECT_EQ(read_meeting_point(folder_ + "/other"), "");
}

TEST_F(MeetingPoint, IsNotBelievedWhereOthersMayReadIt) {
  ::chmod(path_.c_str(), 0640);
  EXPECT_EQ(read_meeting_point(path_), "");
}

TEST_F(MeetingPoint, IsNotFollowedElsewhere) {
  const std::string link = folder_ + "/link";
  ASSERT_EQ(::symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_EQ(read_meeting_point(link), "");
}

TEST_F(MeetingPoint, DoesNotWaitForAPipe) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_meeting_point(pipe), "");
}

TEST_F(MeetingPoint, TakesItsFolderWithItOnceThatIsEmpty) {
  const std::string other = folder_ + "/other";
  std::ofstream(other) << "kept";
  remove_meeting_point(path_);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(other));
  std::filesystem::remove(other);
  remove_meeting_point(path_);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

}  // namespace
}  // namespace oddrank::control
