// Opens regular files to read; reads a whole one into memory, up to a limit. Not mapped: a file
// that another process cuts off would end this one by SIGBUS.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "os/error.hpp"
#include "os/fd.hpp"

namespace oddrank {

// Opens a file without waiting for another process. Throws SystemError if it cannot be opened,
// Error if it is no regular file: a pipe or a device.
inline Fd open_regular(const std::string& path, struct stat& info) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) throw_errno("open " + path);
  if (::fstat(fd.get(), &info) != 0) throw_errno("stat " + path);
  if (!S_ISREG(info.st_mode)) throw Error(path + " is no regular file");
  return fd;
}

// Gives a file's bytes in chunks until take(std::string_view) returns false or the file ends.
// Throws SystemError if it cannot be read. `chunk`: room to read into, for many files.
template <class Take>
void read_chunks(const Fd& fd, const std::string& path, Take&& take, std::string& chunk) {
  chunk.resize(std::size_t{1} << 20);
  for (bool more = true; more;) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("read " + path);
    more = got > 0 && take(std::string_view(chunk.data(), static_cast<std::size_t>(got)));
  }
}
template <class Take>
void read_chunks(const Fd& fd, const std::string& path, Take&& take) {
  std::string chunk;
  read_chunks(fd, path, take, chunk);
}

struct WholeFile {
  std::string bytes;
  bool whole = true;  // false: the file has more
};

// Returns the file's bytes, at most `most`. Throws as open_regular(), and SystemError if it cannot
// be read.
inline WholeFile read_whole_file(const std::string& path, std::size_t most) {
  struct stat info {};
  const Fd fd = open_regular(path, info);
  const auto size = static_cast<std::size_t>(info.st_size);
  std::string bytes(std::min(size, most), '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::read(fd.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("read " + path);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return {std::move(bytes), size <= most};
}

// Writes all of a text, and calls `pause` where a signal interrupts it. Throws SystemError.
template <class Pause>
void write_all(int fd, std::string_view text, const std::string& what, Pause&& pause) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno != EINTR) throw_errno("write " + what);
    if (put < 0) pause();
    text.remove_prefix(put < 0 ? 0 : static_cast<std::size_t>(put));
  }
}

}  // namespace oddrank
