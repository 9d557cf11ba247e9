// Many files that grow at their ends: more than the process may have open, in little memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "os/fd.hpp"

namespace oddrank::logs {

class Outputs {
 public:
  explicit Outputs(std::string folder) : folder_(std::move(folder)) {}

  // Makes a file, which must not exist, and returns its number. Throws SystemError.
  std::size_t add(const std::string& name);

  // Appends to a file. Throws SystemError if it can't be written.
  void write(std::size_t file, std::string_view text);

  // Writes what is still in memory.
  void flush();

 private:
  struct File {
    std::string path;
    Fd fd;
    std::string waiting;  // not written yet
  };

  void flush(File& file);
  void close_all();

  const std::string folder_;
  std::vector<File> files_;
  std::size_t waiting_ = 0;  // bytes of all files
  std::size_t open_ = 0;
};

}  // namespace oddrank::logs
