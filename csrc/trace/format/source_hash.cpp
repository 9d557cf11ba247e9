// Reads a source file and hashes it (FNV-1a).
#include "trace/format/source_hash.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "os/fd.hpp"

namespace oddrank::trace {
namespace {

constexpr off_t kLargest = 4 << 20;
constexpr std::uint64_t kOffset = 0xCBF29CE484222325;
constexpr std::uint64_t kPrime = 0x100000001B3;

}  // namespace

std::uint64_t source_hash(const std::string& path) noexcept {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0) return 0;
  if (!S_ISREG(found.st_mode) || found.st_size > kLargest) return 0;
  std::uint64_t hash = kOffset;
  std::array<unsigned char, 16384> bytes{};
  ssize_t got = 0;
  while ((got = ::read(file.get(), bytes.data(), bytes.size())) > 0) {
    for (ssize_t i = 0; i < got; ++i) {
      hash = (hash ^ bytes[static_cast<std::size_t>(i)]) * kPrime;
    }
  }
  return got < 0 ? 0 : hash;
}

}  // namespace oddrank::trace
