// Streams through memory and computes in registers, against the clock of this thread's CPU time.
#include "selftest/host_speed.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "selftest/host_mapping.hpp"

namespace oddrank::selftest {
namespace {

// Chains that do not wait for each other: enough for every multiplier of a core.
constexpr std::size_t kChains = 16;
// About half a millisecond of them.
constexpr std::size_t kSteps = 100'000;

double cpu_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The compiler must take what lies there as used, and as changed.
void keep(const void* data) noexcept { asm volatile("" : : "g"(data) : "memory"); }

void read(const std::uint64_t* words, std::size_t count) noexcept {
  std::array<std::uint64_t, 8> sums{};
  for (std::size_t i = 0; i + sums.size() <= count; i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += words[i + j];
  }
  keep(sums.data());
}

// Runs `slice` on each of the slices; the seconds that all would have taken as the fastest one did.
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

}  // namespace oddrank::selftest
