// Writes and reads a keyed pattern through host memory.
#include "selftest/host_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace oddrank::selftest {
namespace {

// Large enough that the loop over it is tight, small enough that a second look at a bad one costs
// nothing.
constexpr std::size_t kBlock = 4096;

class Mapping {
 public:
  explicit Mapping(std::size_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      throw_errno("can't allocate " + std::to_string(bytes) + " bytes of host memory");
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);  // page faults would dominate; refusal is harmless
    ::madvise(data_, bytes, MADV_DONTFORK);  // a fork meanwhile must not double the memory
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(data_, bytes_); }
  std::uint64_t* words() const noexcept { return static_cast<std::uint64_t*>(data_); }

 private:
  void* data_;
  std::size_t bytes_;
};

double faster(double before, std::int64_t nanoseconds) {
  const double seconds = static_cast<double>(nanoseconds) * 1e-9;
  return before == 0 ? seconds : std::min(before, seconds);
}

}  // namespace

void fill_pattern(std::uint64_t* words, std::size_t count, std::uint64_t seed, std::uint64_t flip) {
  for (std::size_t i = 0; i < count; ++i) words[i] = pattern(i, seed) ^ flip;
}

void find_mismatches(const std::uint64_t* words, std::size_t count, std::uint64_t seed,
                     std::uint64_t flip, Mismatches& found) {
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, count);
    std::uint64_t difference = 0;
    for (std::size_t i = begin; i < end; ++i) difference |= words[i] ^ pattern(i, seed) ^ flip;
    if (difference == 0) continue;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint64_t expected = pattern(i, seed) ^ flip;
      const std::uint64_t got = words[i];
      if (got == expected) continue;
      if (found.count++ == 0) {
        found.index = i;
        found.expected = expected;
        found.got = got;
      }
    }
  }
}

MemoryResult verify_host_memory(std::size_t bytes, std::uint64_t seed,
                                std::optional<std::size_t> damage) {
  const std::size_t count = bytes / sizeof(std::uint64_t);
  if (count == 0) throw Error("a memory test needs at least 8 bytes");
  if (damage && *damage >= count) throw Error("there is no word to damage at that index");
  const Mapping memory(count * sizeof(std::uint64_t));
  MemoryResult result;
  result.bytes = count * sizeof(std::uint64_t);
  for (const std::uint64_t flip : kPasses) {
    const std::int64_t begin = monotonic_ns();
    fill_pattern(memory.words(), count, seed, flip);
    const std::int64_t written = monotonic_ns();
    if (damage && flip == kPasses[0]) memory.words()[*damage] ^= 1;
    asm volatile("" ::: "memory");  // the compiler must not know what was written
    find_mismatches(memory.words(), count, seed, flip, result.mismatches);
    result.write_seconds = faster(result.write_seconds, written - begin);
    result.read_seconds = faster(result.read_seconds, monotonic_ns() - written);
  }
  return result;
}

}  // namespace oddrank::selftest
