// A test with a folder of its own (0700), which goes with it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace oddrank {

class InFolder : public testing::Test {
 protected:
  InFolder() {
    std::string name = testing::TempDir() + "oddrank-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~InFolder() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

}  // namespace oddrank
