// Reads and removes the rendezvous file; oddrank/control/rendezvous.py writes it.
#include "control/rendezvous_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "os/fd.hpp"

namespace oddrank::control {

std::string read_rendezvous_file(const std::string& path) {
  if (path.empty()) return "";
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file) return "";
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & 077) != 0) {
    return "";
  }
  std::array<char, 4096> text{};
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : "";
}

void remove_rendezvous_file(const std::string& path) noexcept {
  if (path.empty()) return;
  ::unlink(path.c_str());
  std::array<char, 4096> folder{};
  const std::size_t size = path.rfind('/');
  if (size == std::string::npos || size >= folder.size()) return;
  path.copy(folder.data(), size);
  ::rmdir(folder.data());
}

}  // namespace oddrank::control
