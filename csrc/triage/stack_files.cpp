// Reads files with stacks in chunks. Not mapped: a file cut off meanwhile would end the process.
#include "triage/stack_files.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <string_view>

#include "os/error.hpp"
#include "os/fd.hpp"
#include "os/whole_file.hpp"

namespace oddrank::triage {
namespace {

constexpr std::size_t kChunk = 1 << 20;

// Returns the next bytes; empty at the end.
std::string_view next(const Fd& fd, std::string& buffer, const std::string& path) {
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got >= 0) return {buffer.data(), static_cast<std::size_t>(got)};
    if (errno != EINTR) throw_errno("read " + path);
  }
}

}  // namespace

std::vector<std::pair<std::uint32_t, std::string>> read_stack_files(
    StackReader& reader, const std::vector<std::string>& paths) {
  std::vector<std::pair<std::uint32_t, std::string>> failed;
  std::string buffer(kChunk, '\0');
  for (std::uint32_t i = 0; i < paths.size(); ++i) {
    try {
      struct stat info {};
      const Fd fd = open_regular(paths[i], info);
      auto left = static_cast<std::size_t>(info.st_size);
      // Most files are one read: a second one, only to see their end, would cost as much again.
      do {
        const std::string_view bytes = next(fd, buffer, paths[i]);
        if (bytes.empty()) break;
        reader.read(i, bytes);
        left -= std::min(left, bytes.size());
      } while (left > 0);
    } catch (const Error& error) {
      failed.emplace_back(i, error.what());
    }
    reader.finish();
  }
  return failed;
}

bool has_stacks(const std::string& path) noexcept {
  static constexpr std::array<std::string_view, 8> kSigns{
      "(most recent call ",    "MainThread\"", "\nThread ", "(LWP ", "\n#0 ", "\nTID ",
      "Traceback for thread ", ": Thread "};
  try {
    struct stat info {};
    const Fd fd = open_regular(path, info);
    std::string buffer(kChunk, '\0');
    std::string tail = "\n";
    for (std::size_t chunk = 0; chunk < 16; ++chunk) {
      const std::string_view bytes = next(fd, buffer, path);
      if (bytes.empty()) return false;
      tail.append(bytes);
      for (const std::string_view sign : kSigns) {
        if (tail.find(sign) != std::string::npos) return true;
      }
      tail.erase(0, tail.size() - std::min<std::size_t>(tail.size(), 64));
    }
  } catch (const std::exception&) {
    return false;
  }
  return false;
}

}  // namespace oddrank::triage
