// Tests of a host by one thread: whether its memory keeps written values, how fast its memory and
// cores are, and whether it computes rightly. The patterns, the results and the arithmetic are also
// used by a GPU's tests. C++17: included by .cu files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "os/mix.hpp"

#if !defined(__CUDA_ARCH__)
#include <cmath>
#endif

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
  std::uint64_t bits = 0;      // wrong in any pass
  std::uint64_t index = 0;     // the first known one's, in 64-bit words, if count > 0
  std::uint64_t expected = 0;  // the value written there
  std::uint64_t got = 0;       // the value read
  const char* pass = "";       // in which pass
};

struct MemoryResult {
  std::size_t bytes = 0;   // tested: whole blocks only
  std::size_t passes = 0;  // done, of kPasses
  Mismatches mismatches;
  double write_seconds = 0;  // the faster pass's
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

// Arithmetic in a fixed order has a known result: the same bits on every IEEE 754 machine.
//
// A lane is a chain of `kFingerprintRounds` dependent steps that starts from the lane's number and
// ends in 64 bits; a fingerprint folds the lanes 0..kFingerprintLanes-1 in their order. A GPU
// computes each lane in a thread and folds them in one, so that each of its multiprocessors has the
// fingerprint that the host has. No operation may be fused, reordered or flushed to zero: files
// that include this are compiled with -ffp-contract=off, and on a GPU every operation is an
// intrinsic that nvcc never contracts. Values stay far from overflow and from denormals.

inline constexpr std::uint32_t kFingerprintLanes = 256;
inline constexpr std::uint32_t kFingerprintRounds = 512;

// The units that a fingerprint exercises, in the order of kGolden and of the results.
enum class Unit : std::uint32_t { kFp32, kFp64, kInteger };
inline constexpr const char* kUnits[] = {"fp32", "fp64", "integer"};
inline constexpr std::size_t kUnitCount = 3;

// The results of a healthy machine.
inline constexpr std::uint64_t kGolden[kUnitCount] = {0x2C718C235AFB668Eu, 0xE55B709B5E17A92Bu,
                                                      0x9EB17AE792AFABE9u};

// Returns `hash` with `value` folded in; the order counts.
ODDRANK_HOST_DEVICE constexpr std::uint64_t fold(std::uint64_t hash, std::uint64_t value) {
  const std::uint64_t mixed = (hash ^ value) * 0xD6E8FEB86659FD93u;
  return mixed ^ (mixed >> 29);
}

namespace exact {

#if defined(__CUDA_ARCH__)
ODDRANK_HOST_DEVICE inline float add(float a, float b) { return __fadd_rn(a, b); }
ODDRANK_HOST_DEVICE inline float multiply(float a, float b) { return __fmul_rn(a, b); }
ODDRANK_HOST_DEVICE inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
ODDRANK_HOST_DEVICE inline float divide(float a, float b) { return __fdiv_rn(a, b); }
ODDRANK_HOST_DEVICE inline float root(float a) { return __fsqrt_rn(a); }
ODDRANK_HOST_DEVICE inline double add(double a, double b) { return __dadd_rn(a, b); }
ODDRANK_HOST_DEVICE inline double multiply(double a, double b) { return __dmul_rn(a, b); }
ODDRANK_HOST_DEVICE inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
ODDRANK_HOST_DEVICE inline double divide(double a, double b) { return __ddiv_rn(a, b); }
ODDRANK_HOST_DEVICE inline double root(double a) { return __dsqrt_rn(a); }
#else
template <typename T>
ODDRANK_HOST_DEVICE T add(T a, T b) {
  return a + b;
}
template <typename T>
ODDRANK_HOST_DEVICE T multiply(T a, T b) {
  return a * b;
}
template <typename T>
ODDRANK_HOST_DEVICE T fused(T a, T b, T c) {
  return std::fma(a, b, c);
}
template <typename T>
ODDRANK_HOST_DEVICE T divide(T a, T b) {
  return a / b;
}
template <typename T>
ODDRANK_HOST_DEVICE T root(T a) {
  return std::sqrt(a);
}
#endif

template <typename T>
struct BitsOf;
template <>
struct BitsOf<float> {
  using Type = std::uint32_t;
};
template <>
struct BitsOf<double> {
  using Type = std::uint64_t;
};

template <typename T>
ODDRANK_HOST_DEVICE typename BitsOf<T>::Type bits(T value) {
  typename BitsOf<T>::Type result = 0;
  static_assert(sizeof result == sizeof value, "bits of the value and nothing else");
  std::memcpy(&result, &value, sizeof result);
  return result;
}

}  // namespace exact

// One lane in T: x stays in [1, 2) and y in (1/2, 2), and the hash keeps every bit of every step.
template <typename T>
ODDRANK_HOST_DEVICE std::uint64_t float_lane(std::uint32_t lane) {
  T x = exact::add(T(1), exact::divide(T(lane + 1), T(kFingerprintLanes + 3)));
  T y = exact::add(T(1), exact::divide(T(1), T(lane + 7)));
  std::uint64_t hash = lane;
  for (std::uint32_t i = 0; i < kFingerprintRounds; ++i) {
    const T scaled = exact::divide(exact::multiply(x, y), exact::add(x, y));
    const T high = exact::root(exact::fused(x, y, T(1)));
    const T low = exact::fused(T(-0.625), scaled, high);  // its product is not rounded
    x = exact::add(T(0.5), exact::multiply(low, low));
    while (x >= T(2)) x = exact::multiply(x, T(0.5));
    while (x < T(1)) x = exact::multiply(x, T(2));
    y = exact::add(exact::multiply(T(0.375), y), exact::divide(T(1.25), high));
    hash = fold(hash, (std::uint64_t{exact::bits(x)} << 1) ^ exact::bits(y));
  }
  return hash;
}

ODDRANK_HOST_DEVICE inline std::uint64_t integer_lane(std::uint32_t lane) {
  std::uint64_t x = keyed_word(lane, 0x0DD0DD0DD0DD0DD1u) | 1;
  std::uint32_t y = lane + 1;
  for (std::uint32_t i = 0; i < kFingerprintRounds; ++i) {
    x = x * 6364136223846793005u + y;
    x ^= x >> (7 + (y & 15));
    y = y * 747796405u + static_cast<std::uint32_t>(x >> 32);
    x += (x << 21) / (y | 1u);
    y ^= static_cast<std::uint32_t>(x % 4093u);
  }
  return fold(x, y);
}

ODDRANK_HOST_DEVICE inline std::uint64_t fingerprint_lane(Unit unit, std::uint32_t lane) {
  if (unit == Unit::kFp32) return float_lane<float>(lane);
  if (unit == Unit::kFp64) return float_lane<double>(lane);
  return integer_lane(lane);
}

// Computes all lanes on this thread, compiled without contraction (host_tests.cpp).
std::uint64_t host_fingerprint(Unit unit);

}  // namespace oddrank::selftest
