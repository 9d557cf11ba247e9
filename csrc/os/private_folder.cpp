// Walks to a private folder with openat(), trusting nothing that a stranger could have put there.
#include "os/private_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <deque>

#include "os/error.hpp"

namespace oddrank {
namespace {

constexpr int kMaxLinks = 16;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// The user that stands for all without a mapping, if root has none (rootless containers); else a
// user that owns nothing.
uid_t unmapped_root() noexcept {
  static const uid_t user = [] {
    unsigned inside = 1;
    unsigned outside = 1;
    unsigned count = 0;
    std::FILE* map = std::fopen("/proc/self/uid_map", "re");
    if (map == nullptr) return static_cast<uid_t>(-1);
    const int fields = std::fscanf(map, "%u %u %u", &inside, &outside, &count);
    std::fclose(map);
    const bool whole_host = fields == 3 && inside == 0 && outside == 0 && count == UINT_MAX;
    return whole_host ? static_cast<uid_t>(-1) : uid_t{65534};
  }();
  return user;
}

bool trusted(uid_t owner) noexcept {
  return owner == 0 || owner == ::geteuid() || owner == unmapped_root();
}

bool open_to_others(const struct stat& entry) noexcept {
  return (entry.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

struct stat stat_of(int fd, const std::string& name) {
  struct stat entry {};
  if (::fstat(fd, &entry) != 0) throw_errno("stat " + name);
  return entry;
}

// Strangers can neither rename nor replace its entries (if sticky: entries of us or root).
void check_way(const struct stat& folder, const std::string& name) {
  if (!trusted(folder.st_uid)) throw Error(name + " belongs to another user");
  if (open_to_others(folder) && (folder.st_mode & S_ISVTX) == 0)
    throw Error(name + " can be written by others (chmod go-w, or name another folder)");
}

void check_ours(const struct stat& entry, const std::string& name) {
  if (entry.st_uid != ::geteuid()) throw Error(name + " belongs to another user");
  if (open_to_others(entry)) throw Error(name + " can be written by others (chmod go-w)");
}

void push_front(std::deque<std::string>& parts, const std::string& path) {
  std::deque<std::string> fresh;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (end > at && path.compare(at, end - at, ".") != 0)
      fresh.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  parts.insert(parts.begin(), fresh.begin(), fresh.end());
}

// The link's target where it may be followed, else an exception.
std::string follow(int folder, const std::string& part, const std::string& name) {
  struct stat link {};
  if (::fstatat(folder, part.c_str(), &link, AT_SYMLINK_NOFOLLOW) != 0) throw_errno("stat " + name);
  if (!S_ISLNK(link.st_mode)) throw Error(name + " is not a folder");
  if (open_to_others(stat_of(folder, name)) || !trusted(link.st_uid))
    throw Error(name + " is a symbolic link where others can write");
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlinkat(folder, part.c_str(), target.data(), target.size());
  if (size <= 0) throw_errno("readlink " + name);
  return {target.data(), static_cast<std::size_t>(size)};
}

}  // namespace

Fd open_private_folder(const std::string& path) {
  if (path.empty() || path.front() != '/') throw Error("'" + path + "' is not an absolute path");
  std::deque<std::string> parts;
  push_front(parts, path);
  Fd folder(::open("/", kFolderFlags));
  if (!folder) throw_errno("open /");
  int links = 0;
  std::string name;
  while (!parts.empty()) {
    const std::string part = parts.front();
    parts.pop_front();
    check_way(stat_of(folder.get(), name), name.empty() ? "/" : name);
    std::string child = name;
    child.append("/").append(part);
    Fd next(::openat(folder.get(), part.c_str(), kFolderFlags));
    if (!next && errno == ENOENT) {
      if (::mkdirat(folder.get(), part.c_str(), 0700) != 0 && errno != EEXIST)
        throw_errno("mkdir " + child);
      next.reset(::openat(folder.get(), part.c_str(), kFolderFlags));
    }
    if (next) {
      folder = std::move(next);
      name = child;
      continue;
    }
    if (errno != ELOOP && errno != ENOTDIR) throw_errno("open " + child);
    if (++links > kMaxLinks) throw Error(child + " has too many symbolic links on its way");
    const std::string target = follow(folder.get(), part, child);
    push_front(parts, target);
    if (target.front() == '/') {
      folder.reset(::open("/", kFolderFlags));
      name.clear();
    }
  }
  check_ours(stat_of(folder.get(), name), name);
  return folder;
}

Fd open_private_file(int folder, const std::string& name, int flags) {
  Fd file(::openat(folder, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!file) throw_errno("open " + name);
  const struct stat entry = stat_of(file.get(), name);
  check_ours(entry, name);
  if (!S_ISREG(entry.st_mode)) throw Error(name + " is not a regular file");
  if (entry.st_nlink > 1) throw Error(name + " has several names");
  return file;
}

int lock_exclusively(int fd, Deadline deadline) noexcept {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || deadline.passed()) return errno;
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return 0;
}

}  // namespace oddrank
