// Reads /proc without allocating.
#include "os/proc.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "os/fd.hpp"

namespace oddrank {

std::size_t read_small_file(const char* path, char* buffer, std::size_t size) noexcept {
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return 0;
  const ssize_t got = ::read(file.get(), buffer, size - 1);
  const std::size_t length = got > 0 ? static_cast<std::size_t>(got) : 0;
  buffer[length] = 0;
  return length;
}

namespace {

ProcStat read_stat_file(const char* path) noexcept {
  std::array<char, 2048> text{};
  ProcStat stat;
  if (read_small_file(path, text.data(), text.size()) == 0) return stat;
  // The command's name may hold anything: the fields start after the last ')'.
  const char* at = std::strrchr(text.data(), ')');
  if (at == nullptr || at[1] != ' ') return stat;
  at += 2;
  for (int field = 3; *at != 0; ++field) {
    if (field == 3) stat.state = *at;
    if (field == 4) stat.parent = static_cast<pid_t>(std::strtol(at, nullptr, 10));
    if (field == 14 || field == 15) stat.cpu_ticks += std::strtoull(at, nullptr, 10);
    if (field == 16 || field == 17) stat.child_ticks += std::strtoull(at, nullptr, 10);
    if (field == 22) stat.start_time = std::strtoull(at, nullptr, 10);
    if (field == 52) stat.wait_status = static_cast<int>(std::strtol(at, nullptr, 10));
    at += std::strcspn(at, " ");
    if (*at == ' ') ++at;
  }
  return stat;
}

}  // namespace

ProcStat read_stat(pid_t pid) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid);
  return read_stat_file(path.data());
}

ProcStat read_task_stat(pid_t pid, pid_t tid) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/task/%d/stat", pid, tid);
  return read_stat_file(path.data());
}

std::string wchan_of(pid_t id) {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/wchan", id);
  std::array<char, 128> text{};
  const std::size_t size = read_small_file(path.data(), text.data(), text.size());
  std::string name(text.data(), size);
  const bool is_symbol = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.';
  });
  return is_symbol && name != "0" ? name : std::string{};
}

std::string boot_id() {
  std::array<char, 64> text{};
  const std::size_t size =
      read_small_file("/proc/sys/kernel/random/boot_id", text.data(), text.size());
  std::string id(text.data(), size);
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

std::uint64_t pid_namespace() noexcept {
  struct stat link {};
  return ::stat("/proc/self/ns/pid", &link) == 0 ? link.st_ino : 0;
}

}  // namespace oddrank
