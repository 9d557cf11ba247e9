// Times memory and arithmetic by the CPU time of this thread, checks patterns in memory, and
// computes the fingerprint of its core.
#include "selftest/host_tests.hpp"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "os/clock.hpp"
#include "os/error.hpp"

namespace oddrank::selftest {
namespace {

// Fresh memory, unmapped on destruction.
class HostMapping {
 public:
  explicit HostMapping(std::size_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      throw_errno("can't allocate " + std::to_string(bytes) + " bytes of host memory");
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);  // page faults would dominate; refusal is harmless
    ::madvise(data_, bytes, MADV_DONTFORK);  // a fork meanwhile must not double the memory
  }
  HostMapping(const HostMapping&) = delete;
  HostMapping& operator=(const HostMapping&) = delete;
  ~HostMapping() { ::munmap(data_, bytes_); }
  std::uint64_t* words() const noexcept { return static_cast<std::uint64_t*>(data_); }

 private:
  void* data_;
  std::size_t bytes_;
};

// Independent chains: enough for every multiplier of a core.
constexpr std::size_t kChains = 16;
// About half a millisecond.
constexpr std::size_t kSteps = 100'000;

double cpu_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Makes the compiler take the data as used and as changed.
void keep(const void* data) noexcept { asm volatile("" : : "g"(data) : "memory"); }

void read(const std::uint64_t* words, std::size_t count) noexcept {
  std::array<std::uint64_t, 8> sums{};
  for (std::size_t i = 0; i + sums.size() <= count; i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += words[i + j];
  }
  keep(sums.data());
}

// Runs `slice` on each of the slices. Returns the seconds of the fastest one times their number.
template <typename Slice>
double fastest(int slices, Slice&& slice) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < slices; ++i) {
    const double begin = cpu_seconds();
    slice(static_cast<std::size_t>(i));
    best = std::min(best, cpu_seconds() - begin);
  }
  return best * slices;
}

void compute(std::array<double, kChains>& chains) noexcept {
  for (std::size_t i = 0; i < kSteps; ++i) {
    for (double& x : chains) x = x * 0.999999 + 1e-6;
  }
  keep(chains.data());
}

}  // namespace

MemoryTimes time_host_memory(std::size_t bytes, int repeats, int slices) {
  if (repeats < 1 || slices < 1) throw Error("at least one repeat of one slice is measured");
  const std::size_t each = bytes / sizeof(std::uint64_t) / static_cast<std::size_t>(slices);
  if (each < 8) throw Error("a slice of memory has at least 64 bytes");
  MemoryTimes times;
  times.bytes = each * sizeof(std::uint64_t) * static_cast<std::size_t>(slices);
  const HostMapping from(times.bytes);
  const HostMapping to(times.bytes);
  std::memset(from.words(), 1, times.bytes);  // page faults come before, and in no repeat
  std::memset(to.words(), 2, times.bytes);
  for (int i = 0; i < repeats; ++i) {
    times.read.push_back(
        fastest(slices, [&](std::size_t slice) { read(from.words() + slice * each, each); }));
    times.write.push_back(fastest(slices, [&](std::size_t slice) {
      std::uint64_t* const words = to.words() + slice * each;
      std::fill(words, words + each, static_cast<std::uint64_t>(i));
      keep(words);
    }));
    times.copy.push_back(fastest(slices, [&](std::size_t slice) {
      std::memcpy(to.words() + slice * each, from.words() + slice * each,
                  each * sizeof(std::uint64_t));
      keep(to.words());
    }));
  }
  return times;
}

ComputeTimes time_host_compute(double seconds, int repeats) {
  ComputeTimes times;
  times.operations = 2.0 * kChains * kSteps;
  std::array<double, kChains> chains{};
  for (int i = 0; i < repeats; ++i) {
    const Deadline end = Deadline::after_seconds(seconds);
    double best = std::numeric_limits<double>::infinity();
    do {
      best = std::min(best, fastest(1, [&](std::size_t) { compute(chains); }));
    } while (!end.passed());
    times.seconds.push_back(best);
  }
  return times;
}

namespace {

// Large enough that the loop over it is tight, small enough that a second pass over a bad one costs
// nothing.
constexpr std::size_t kBlock = 4096;

double faster(double before, std::int64_t nanoseconds) {
  const double seconds = static_cast<double>(nanoseconds) * 1e-9;
  return before == 0 ? seconds : std::min(before, seconds);
}

template <Filling filling>
void find(const std::uint64_t* words, std::size_t count, std::uint64_t seed, const Pass& pass,
          Mismatches& found) {
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, count);
    std::uint64_t difference = 0;
    for (std::size_t i = begin; i < end; ++i) {
      difference |= words[i] ^ word_at<filling>(i, seed) ^ pass.flip;
    }
    if (difference == 0) continue;
    found.bits |= difference;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint64_t expected = word_at<filling>(i, seed) ^ pass.flip;
      if (words[i] == expected || found.count++ != 0) continue;
      found.index = i;
      found.expected = expected;
      found.got = words[i];
      found.pass = pass.name;
    }
  }
}

}  // namespace

void fill_pattern(std::uint64_t* words, std::size_t count, std::uint64_t seed, const Pass& pass) {
  with_filling(pass.filling, [&](auto filling) {
    for (std::size_t i = 0; i < count; ++i) words[i] = word_at<filling()>(i, seed) ^ pass.flip;
  });
}

void find_mismatches(const std::uint64_t* words, std::size_t count, std::uint64_t seed,
                     const Pass& pass, Mismatches& found) {
  with_filling(pass.filling,
               [&](auto filling) { find<filling()>(words, count, seed, pass, found); });
}

MemoryResult verify_host_memory(std::size_t bytes, std::uint64_t seed, std::size_t passes,
                                std::optional<Damage> damage) {
  const std::size_t count = bytes / sizeof(std::uint64_t);
  if (count == 0) throw Error("a memory test needs at least 8 bytes");
  if (damage && damage->index >= count) throw Error("damage: the index is beyond the memory");
  const HostMapping memory(count * sizeof(std::uint64_t));
  MemoryResult result;
  result.bytes = count * sizeof(std::uint64_t);
  for (std::size_t i = 0; i < std::min(passes, kAllPasses); ++i) {
    const Pass& pass = kPasses[i];
    const std::int64_t begin = monotonic_ns();
    fill_pattern(memory.words(), count, seed, pass);
    const std::int64_t written = monotonic_ns();
    if (damage && damage->pass == i) memory.words()[damage->index] ^= 1;
    asm volatile("" ::: "memory");  // the compiler must not know the written values
    find_mismatches(memory.words(), count, seed, pass, result.mismatches);
    result.write_seconds = faster(result.write_seconds, written - begin);
    result.read_seconds = faster(result.read_seconds, monotonic_ns() - written);
    ++result.passes;
  }
  return result;
}

std::uint64_t host_fingerprint(Unit unit) {
  std::uint64_t hash = 0;
  for (std::uint32_t lane = 0; lane < kFingerprintLanes; ++lane) {
    hash = fold(hash, fingerprint_lane(unit, lane));
  }
  return hash;
}

}  // namespace oddrank::selftest
