// Reads small files of /proc and /sys/fs/cgroup. What is not readable counts as zero or empty.
#include "run/kernel_facts.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "os/fd.hpp"
#include "os/proc.hpp"

namespace oddrank::run {
namespace {

constexpr std::size_t kMostProcesses = 1 << 16;
constexpr std::size_t kMostText = std::size_t{1} << 18;

std::string read_text(const std::string& path) {
  std::string text;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while (file && text.size() < kMostText &&
         (got = ::read(file.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::string proc(pid_t pid, const std::string& name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

// Returns the number after `name` at the begin of a line of "name value" or "name: value".
std::optional<std::uint64_t> value_after(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (line.starts_with(':')) line.remove_prefix(1);
    if (!line.starts_with(' ')) continue;
    line.remove_prefix(1);
    std::uint64_t value = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), value).ec == std::errc{}) {
      return value;
    }
  }
  return std::nullopt;
}

// Returns the numbers that name the entries of a folder of /proc.
std::vector<pid_t> numbers_in(const std::string& folder, std::size_t most) {
  std::vector<pid_t> numbers;
  DIR* entries = ::opendir(folder.c_str());
  if (entries == nullptr) return numbers;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    pid_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc{} || end != name.data() + name.size()) continue;
    if (numbers.size() < most) numbers.push_back(number);
  }
  ::closedir(entries);
  return numbers;
}

std::uint64_t ns_of(std::uint64_t ticks) noexcept {
  static const auto hertz = static_cast<std::uint64_t>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  return ticks * (1'000'000'000 / hertz);
}

// Returns the process, if it lives, and its descendants. Reads every process of the host: not each
// kernel has the lists of children in /proc.
std::vector<std::pair<pid_t, ProcStat>> family_of(pid_t pid) {
  std::multimap<pid_t, std::pair<pid_t, ProcStat>> children;
  for (const pid_t each : numbers_in("/proc", kMostProcesses)) {
    const ProcStat stat = read_stat(each);
    if (stat.state != 0 && each != pid) children.insert({stat.parent, {each, stat}});
  }
  std::vector<std::pair<pid_t, ProcStat>> family;
  const ProcStat own = read_stat(pid);
  if (own.state != 0) family.emplace_back(pid, own);
  for (std::size_t i = 0; i < family.size(); ++i) {
    const auto [first, last] = children.equal_range(family[i].first);
    for (auto child = first; child != last; ++child) family.push_back(child->second);
    children.erase(first, last);  // a pid that was used again can make no circle
  }
  return family;
}

// Returns for how long the main thread waited for a core; 0 if the kernel does not count it.
std::uint64_t starved_ns_of(pid_t pid) {
  const std::string text = read_text(proc(pid, "schedstat"));  // nanoseconds: ran, waited; turns
  const char* const end = text.data() + text.size();
  const char* const waited = std::find(text.data(), end, ' ');
  std::uint64_t ns = 0;
  if (waited != end) std::from_chars(waited + 1, end, ns);
  return ns;
}

std::uint64_t io_bytes_of(pid_t pid) {
  const std::string text = read_text(proc(pid, "io"));
  std::uint64_t sum = 0;
  for (const std::string_view name : {"rchar", "wchar", "read_bytes", "write_bytes"}) {
    sum += value_after(text, name).value_or(0);
  }
  return sum;
}

// The files of a cgroup that may count kills, best first. In a container the path may be that of
// the host: then the container's own cgroup is at the top.
std::vector<std::string> files_with_kills(pid_t pid) {
  std::vector<std::string> files;
  const std::string text = read_text(proc(pid, "cgroup"));
  for (std::size_t at = 0; at < text.size();) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers == "memory") {
      files.push_back("/sys/fs/cgroup/memory" + path + "/memory.oom_control");
      files.emplace_back("/sys/fs/cgroup/memory/memory.oom_control");
    } else if (controllers.empty()) {
      files.push_back("/sys/fs/cgroup" + path + "/memory.events");
      files.emplace_back("/sys/fs/cgroup/memory.events");
      files.push_back("/sys/fs/cgroup/unified" + path + "/memory.events");
    }
  }
  return files;
}

}  // namespace

std::map<pid_t, std::uint64_t> descendants_of(pid_t pid) {
  std::map<pid_t, std::uint64_t> found;
  for (const auto& [each, stat] : family_of(pid)) {
    if (each != pid) found.emplace(each, stat.start_time);
  }
  return found;
}

Usage usage_of(pid_t pid) {
  Usage usage;
  for (const auto& [each, stat] : family_of(pid)) {
    usage.cpu_ns += ns_of(stat.cpu_ticks + stat.child_ticks) + starved_ns_of(each);
    usage.io_bytes += io_bytes_of(each);
  }
  return usage;
}

std::map<std::uint32_t, TaskLook> look_at_threads(pid_t pid,
                                                  const std::vector<std::uint32_t>& tids) {
  std::map<std::uint32_t, TaskLook> looks;
  const auto look = [&](std::uint32_t tid) {
    const ProcStat stat = read_task_stat(pid, static_cast<pid_t>(tid));
    looks[tid] = {stat.state, ns_of(stat.cpu_ticks)};
  };
  look(static_cast<std::uint32_t>(pid));
  for (const std::uint32_t tid : tids) look(tid);
  return looks;
}

OomKills::OomKills(pid_t pid) {
  for (const std::string& file : files_with_kills(pid)) {
    if (const auto count = value_after(read_text(file), "oom_kill")) {
      file_ = file;
      first_ = last_ = *count;
      return;
    }
  }
}

std::uint64_t OomKills::count() {
  if (!file_.empty())
    last_ = std::max(last_, value_after(read_text(file_), "oom_kill").value_or(0));
  return last_ - first_;
}

}  // namespace oddrank::run
