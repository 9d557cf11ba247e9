// The rendezvous file is trusted only if no other user could have written or read it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "../in_folder.hpp"
#include "control/rendezvous.hpp"

namespace oddrank::control {
namespace {

class RendezvousFile : public InFolder {
 protected:
  RendezvousFile() {
    std::ofstream(path_) << "10.0.0.1:29511#secret";
    ::chmod(path_.c_str(), 0600);
  }

  const std::string path_ = path("root");
};

TEST_F(RendezvousFile, gives_the_address_or_nothing_without_waiting) {
  EXPECT_EQ(read_rendezvous_file(path_), "10.0.0.1:29511#secret");
  ASSERT_EQ(::symlink(path_.c_str(), (folder_ + "/link").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  for (const std::string name : {"/absent", "/link", "/pipe", ""}) {
    EXPECT_EQ(read_rendezvous_file(folder_ + name), "") << name;
  }
  EXPECT_EQ(read_rendezvous_file(""), "");
  ::chmod(path_.c_str(), 0640);
  EXPECT_EQ(read_rendezvous_file(path_), "") << "others may read it";
}

TEST_F(RendezvousFile, takes_its_folder_with_it_once_that_is_empty) {
  const std::string other = folder_ + "/other";
  std::ofstream(other) << "kept";
  remove_rendezvous_file(path_);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(other));
  std::filesystem::remove(other);
  remove_rendezvous_file(path_);
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

}  // namespace
}  // namespace oddrank::control
