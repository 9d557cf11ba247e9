// Nothing that a stranger could have put on the way to a private folder is trusted.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "../in_folder.hpp"
#include "os/error.hpp"
#include "os/private_folder.hpp"

namespace {

namespace fs = std::filesystem;
using oddrank::open_private_file;
using oddrank::open_private_folder;

constexpr uid_t kStranger = 12345;

class PrivateFolder : public oddrank::InFolder {
 protected:
  std::string make(const std::string& name, mode_t mode) const {
    const std::string path = this->path(name);
    EXPECT_EQ(::mkdir(path.c_str(), mode), 0);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);  // whatever the umask
    return path;
  }
};

std::string refusal(const std::string& path) {
  try {
    static_cast<void>(open_private_folder(path));
  } catch (const oddrank::Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(PrivateFolder, makes_what_is_missing_and_closes_it_to_others) {
  ASSERT_TRUE(open_private_folder(folder_ + "/a/b"));
  for (const char* name : {"/a", "/a/b"}) {
    struct stat made {};
    ASSERT_EQ(::stat((folder_ + name).c_str(), &made), 0);
    EXPECT_EQ(made.st_mode & 0777, 0700U);
  }
  EXPECT_TRUE(open_private_folder(folder_ + "/a/b"));
}

TEST_F(PrivateFolder, refuses_a_folder_that_others_can_write) {
  EXPECT_NE(refusal(make("group", 0770)).find("written by others"), std::string::npos);
  EXPECT_NE(refusal(make("world", 0707)).find("written by others"), std::string::npos);
  EXPECT_NE(refusal(folder_ + "/world/inside").find("written by others"), std::string::npos);
}

TEST_F(PrivateFolder, works_inside_a_sticky_one_like_tmp) {
  EXPECT_TRUE(open_private_folder(make("sticky", 01777) + "/mine"));
}

TEST_F(PrivateFolder, follows_no_link_in_a_folder_that_others_can_write) {
  const std::string sticky = make("sticky", 01777);
  const std::string target = make("target", 0700);
  fs::create_directory_symlink(target, sticky + "/link");
  EXPECT_NE(refusal(sticky + "/link").find("symbolic link"), std::string::npos);
  EXPECT_NE(refusal(sticky + "/link/inside").find("symbolic link"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(target));
}

TEST_F(PrivateFolder, follows_our_own_links_where_nobody_else_can_write) {
  make("real", 0700);
  fs::create_directory_symlink("real", folder_ + "/relative");
  fs::create_directory_symlink(folder_ + "/relative", folder_ + "/absolute");
  EXPECT_TRUE(open_private_folder(folder_ + "/absolute/inside"));
  EXPECT_TRUE(fs::is_directory(folder_ + "/real/inside"));
}

TEST_F(PrivateFolder, gives_up_on_links_that_go_round) {
  fs::create_directory_symlink("b", folder_ + "/a");
  fs::create_directory_symlink("a", folder_ + "/b");
  EXPECT_NE(refusal(folder_ + "/a").find("too many symbolic links"), std::string::npos);
}

TEST_F(PrivateFolder, refuses_a_folder_of_somebody_else) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const std::string sticky = make("sticky", 01777);
  fs::create_directory(sticky + "/oddrank-0");
  ASSERT_EQ(::chown((sticky + "/oddrank-0").c_str(), kStranger, kStranger), 0);
  EXPECT_NE(refusal(sticky + "/oddrank-0").find("another user"), std::string::npos);
  EXPECT_NE(refusal(sticky + "/oddrank-0/inside").find("another user"), std::string::npos);
}

TEST_F(PrivateFolder, refuses_relative_paths_and_files) {
  EXPECT_NE(refusal("here").find("not an absolute path"), std::string::npos);
  EXPECT_TRUE(open_private_file(open_private_folder(folder_).get(), "file", O_RDWR | O_CREAT));
  EXPECT_NE(refusal(folder_ + "/file").find("not a folder"), std::string::npos);
}

TEST_F(PrivateFolder, opens_no_file_that_is_a_link_a_pipe_or_shared_under_another_name) {
  const oddrank::Fd folder = open_private_folder(folder_);
  fs::create_symlink("/etc/passwd", folder_ + "/link");
  EXPECT_THROW(open_private_file(folder.get(), "link", O_RDWR | O_CREAT), oddrank::SystemError);
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_THROW(open_private_file(folder.get(), "pipe", O_RDWR), oddrank::Error);
  EXPECT_TRUE(open_private_file(folder.get(), "file", O_RDWR | O_CREAT));
  fs::create_hard_link(folder_ + "/file", folder_ + "/second");
  EXPECT_THROW(open_private_file(folder.get(), "file", O_RDWR), oddrank::Error);
}

}  // namespace
