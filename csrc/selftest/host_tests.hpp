// Tests of a host by one thread: whether its memory keeps what is written, and how fast its memory
// and cores are. The patterns and results are those of a GPU's memory test, too. C++17: included by
// .cu files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "os/mix.hpp"

namespace oddrank::selftest {

// The contents that a pass writes: `keyed_word`; the index of each word (a word at a wrong address
// shows its own); a single set bit at another position in each word.
enum class Filling : std::uint32_t { kRandom, kAddress, kWalking };

template <Filling filling>
ODDRANK_HOST_DEVICE constexpr std::uint64_t word_at(std::uint64_t index, std::uint64_t seed) {
  if constexpr (filling == Filling::kAddress) return index;
  if constexpr (filling == Filling::kWalking) return std::uint64_t{1} << ((index + seed) & 63);
  return keyed_word(index, seed);
}

// Every word is XORed with `flip`. Each filling comes with its complement: every bit must hold 0
// and 1.
struct Pass {
  Filling filling;
  std::uint64_t flip;
  const char* name;
};
inline constexpr std::uint64_t kAllBits = ~std::uint64_t{0};
inline constexpr Pass kPasses[] = {
    {Filling::kRandom, 0, "random"},       {Filling::kRandom, kAllBits, "random, inverted"},
    {Filling::kAddress, 0, "own address"}, {Filling::kAddress, kAllBits, "own address, inverted"},
    {Filling::kWalking, 0, "walking one"}, {Filling::kWalking, kAllBits, "walking zero"},
};
inline constexpr std::size_t kAllPasses = sizeof kPasses / sizeof kPasses[0];
inline constexpr std::size_t kQuickPasses = 2;

// Calls use(constant) with the filling as a constant, so that it is chosen outside the loops.
template <class Use>
void with_filling(Filling filling, const Use& use) {
  switch (filling) {
    case Filling::kRandom:
      return use(std::integral_constant<Filling, Filling::kRandom>{});
    case Filling::kAddress:
      return use(std::integral_constant<Filling, Filling::kAddress>{});
    case Filling::kWalking:
      return use(std::integral_constant<Filling, Filling::kWalking>{});
  }
}

// A word to change after a pass has written it, for tests.
struct Damage {
  std::size_t index;
  std::size_t pass = 0;
};

// The words that were read back wrong.
struct Mismatches {
  std::uint64_t count = 0;     // in all passes
  std::uint64_t bits = 0;      // that were wrong in any of them
  std::uint64_t index = 0;     // of the first one known (in 64-bit words), if count > 0
  std::uint64_t expected = 0;  // what was written there
  std::uint64_t got = 0;       // what was read
  const char* pass = "";       // in which pass
};

struct MemoryResult {
  std::size_t bytes = 0;   // tested: whole blocks only
  std::size_t passes = 0;  // of kPasses, that were done
  Mismatches mismatches;
  double write_seconds = 0;  // of the faster pass
  double read_seconds = 0;
};

// Writes the pattern of `pass` into words[0..count).
void fill_pattern(std::uint64_t* words, std::size_t count, std::uint64_t seed, const Pass& pass);
// Adds the words that differ from the pattern to `found`.
void find_mismatches(const std::uint64_t* words, std::size_t count, std::uint64_t seed,
                     const Pass& pass, Mismatches& found);

// Maps `bytes` of fresh memory, writes and reads it in the first `passes` of kPasses on this
// thread, unmaps it. The caller keeps `bytes` within the limits: too much wakes the OOM killer.
MemoryResult verify_host_memory(std::size_t bytes, std::uint64_t seed,
                                std::size_t passes = kQuickPasses,
                                std::optional<Damage> damage = std::nullopt);

// Seconds of each repeat. A repeat counts its fastest slice, for other processes may disturb some.
struct MemoryTimes {
  std::size_t bytes = 0;  // read or written by a repeat; a copy does both
  std::vector<double> read, write, copy;
};

// Streams through two fresh buffers of `bytes` each, in CPU time of this thread, which leaves out
// waits for a core. `bytes` should be several times the last cache.
MemoryTimes time_host_memory(std::size_t bytes, int repeats, int slices);

struct ComputeTimes {
  double operations = 0;        // floating-point operations of a repeat
  std::vector<double> seconds;  // CPU time of this thread
};

// Multiplies and adds in registers, in a fixed order. A repeat lasts about `seconds` of wall time:
// a CPU quota only shows over a few of the kernel's periods (100 ms).
ComputeTimes time_host_compute(double seconds, int repeats);

}  // namespace oddrank::selftest
