// Tests of a GPU: whether its memory keeps a pattern, how fast it and the way to its host are, and
// the fingerprint of each multiprocessor: the units of host_tests.hpp, shared memory and tensor
// cores. C++17: included by gpu_memory.cu and gpu_fingerprint.cu.
//
// Every hash of a fingerprint is known beforehand. A tensor core multiplies small integers, whose
// sums are exact in any order: all its number formats end in the same hash.
#pragma once

#include "os/clock.hpp"
#include "selftest/host_tests.hpp"

namespace oddrank::selftest {

// Tests `bytes` (rounded down to 16) of `device` in the first `passes` of kPasses, but begins no
// further pass once `enough` has passed. `bytes` should be several times the L2 cache. Throws Error
// if the allocation or a kernel fails, or the deadline passes: memory that the GPU still uses then
// stays allocated.
MemoryResult verify_memory(int device, std::size_t bytes, std::uint64_t seed, Deadline enough,
                           Deadline deadline, std::size_t passes = kQuickPasses,
                           std::optional<Damage> damage = std::nullopt);

// Returns the GPU's seconds of each of `repeats` copies of `bytes` within `device` by cudaMemcpy,
// the yardstick of verify_memory. Each copy reads and writes `bytes`.
std::vector<double> time_copies(int device, std::size_t bytes, int repeats, Deadline deadline);

// The GPU's seconds of each repeat, as in this file's MemoryTimes.
struct TransferTimes {
  std::size_t bytes = 0;
  std::vector<double> to_device, to_host;
};

// Streams through two buffers of `bytes` (rounded down to whole blocks) of `device`; `bytes` should
// be several times the L2 cache. Both functions throw Error if an allocation or work fails, or the
// deadline passes: memory that the GPU still uses then stays allocated.
MemoryTimes time_device_memory(int device, std::size_t bytes, int repeats, Deadline deadline);
// Copies through pinned memory of the host, one direction after the other.
TransferTimes time_transfers(int device, std::size_t bytes, int repeats, Deadline deadline);

// The units of the host come first, with their own order and hashes.
inline constexpr const char* kGpuUnits[] = {"fp32",        "fp64",        "integer",
                                            "shared",      "tensor_fp16", "tensor_bf16",
                                            "tensor_tf32", "tensor_int8"};
inline constexpr std::size_t kGpuUnitCount = 8;

// Shared memory: kSharedWords words are scattered and read back, kSharedRounds times.
inline constexpr std::uint32_t kSharedWords = 4096;
inline constexpr std::uint32_t kSharedRounds = 4;
// Returns the index of word i in a round: a permutation, another one each round.
ODDRANK_HOST_DEVICE constexpr std::uint32_t shared_place(std::uint32_t i, std::uint32_t round) {
  return (i * (2 * (round * 1021 + 77) + 1) + round * 977) % kSharedWords;
}
ODDRANK_HOST_DEVICE constexpr std::uint64_t shared_word(std::uint32_t i, std::uint32_t round) {
  return keyed_word(std::uint64_t{round} * kSharedWords + i, 0x5AFE5AFE5AFE5AFFu);
}

// Tensor cores: each of 8 warps adds up kTensorRounds products of 16 x 16 matrices.
inline constexpr std::uint32_t kTensorTile = 16;
inline constexpr std::uint32_t kTensorWarps = 8;
inline constexpr std::uint32_t kTensorRounds = 64;
// Element `column` of row `row` (of the left matrix below 16, of the right one from there on): -8
// to 7, so that no sum is beyond 65536.
ODDRANK_HOST_DEVICE constexpr std::uint64_t tensor_row(std::uint32_t warp, std::uint32_t round,
                                                       std::uint32_t row) {
  return keyed_word((std::uint64_t{warp} * kTensorRounds + round) * 2 * kTensorTile + row,
                    0x7E4507E4507E4507u);
}
ODDRANK_HOST_DEVICE constexpr int tensor_element(std::uint64_t row, std::uint32_t column) {
  return static_cast<int>((row >> (4 * column)) & 15) - 8;
}

inline constexpr std::uint64_t kGoldenShared = 0x0CD6572945135C0Au;
inline constexpr std::uint64_t kGoldenTensor = 0x8DE80484AA95721Eu;

constexpr std::uint64_t gpu_golden(std::size_t unit) {
  return unit < kUnitCount ? kGolden[unit] : unit == kUnitCount ? kGoldenShared : kGoldenTensor;
}

// Returns whether code compiled for the architecture `code` (90 = sm_90) computes the unit. If not,
// its hashes mean nothing.
constexpr bool has_unit(std::size_t unit, int code) {
  constexpr int kOldest[kGpuUnitCount] = {0, 0, 0, 0, 70, 80, 80, 72};
  return code >= kOldest[unit];
}

// One block of threads on one multiprocessor.
struct BlockPrint {
  std::uint32_t multiprocessor;
  std::uint32_t repeat;
  std::uint64_t hashes[kGpuUnitCount];
};

struct GpuPrints {
  int code = 0;                // architecture that the code was compiled for: 90 = sm_90
  int multiprocessors = 0;     // the GPU's
  std::uint64_t computed = 0;  // blocks in all repeats
  // One block per multiprocessor from the first repeat, preferably one that differs from most; from
  // later repeats only blocks that differ, up to a limit.
  std::vector<BlockPrint> prints;
};

// Repeats until `enough` has passed, at least once. The GPU places the blocks, so a repeat launches
// up to a few times until each multiprocessor has had one. Throws Error if a kernel fails or
// `deadline` passes. `spoil`: a unit that one thread computes wrong, for tests; -1: none.
GpuPrints gpu_fingerprint(int device, Deadline enough, Deadline deadline, int spoil = -1);

}  // namespace oddrank::selftest
