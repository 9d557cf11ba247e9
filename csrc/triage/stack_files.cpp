// Reads files with stacks in chunks. Not mapped: a file cut off meanwhile would end the process.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>

#include "os/error.hpp"
#include "os/whole_file.hpp"
#include "triage/stack_text.hpp"

namespace oddrank::triage {
std::vector<std::pair<std::uint32_t, std::string>> read_stack_files(
    StackReader& reader, const std::vector<std::string>& paths,
    const std::vector<std::uint64_t>& last) {
  std::vector<std::pair<std::uint32_t, std::string>> failed;
  std::string buffer;
  for (std::uint32_t i = 0; i < paths.size(); ++i) {
    try {
      struct stat info {};
      const Fd fd = open_regular(paths[i], info);
      auto left = static_cast<std::size_t>(info.st_size);
      // Most files are one read: a second one, only to see their end, would cost as much again.
      read_chunks(
          fd, paths[i],
          [&](std::string_view bytes) {
            reader.read(i, bytes);
            left -= std::min(left, bytes.size());
            return left > 0 && (i >= last.size() || last[i] == 0 || reader.lines() < last[i]);
          },
          buffer);
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
    std::string tail = "\n";
    bool found = false;
    read_chunks(fd, path, [&, left = 16](std::string_view bytes) mutable {
      tail.append(bytes);
      found = std::ranges::any_of(
          kSigns, [&](std::string_view sign) { return tail.find(sign) != std::string::npos; });
      tail.erase(0, tail.size() - std::min<std::size_t>(tail.size(), 64));
      return !found && --left > 0;
    });
    return found;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace oddrank::triage
