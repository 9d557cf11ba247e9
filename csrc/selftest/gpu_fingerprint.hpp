// The fingerprint of each multiprocessor of a GPU: what fingerprint.hpp has, and what only a GPU
// has, shared memory and tensor cores. C++17: included by gpu_fingerprint.cu.
//
// Every hash is known beforehand. A tensor core multiplies small integers, whose sums are exact in
// whatever order it adds them: all its number formats end in the same hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"
#include "selftest/fingerprint.hpp"

namespace oddrank::selftest {

// The units of the host come first, with their own order and hashes.
inline constexpr const char* kGpuUnits[] = {"fp32",        "fp64",        "integer",
                                            "shared",      "tensor_fp16", "tensor_bf16",
                                            "tensor_tf32", "tensor_int8"};
inline constexpr std::size_t kGpuUnitCount = 8;

// Shared memory: kSharedWords words are scattered and read back, kSharedRounds times.
inline constexpr std::uint32_t kSharedWords = 4096;
inline constexpr std::uint32_t kSharedRounds = 4;
// Where word i goes in a round: another order each time, and every place once.
ODDRANK_HOST_DEVICE constexpr std::uint32_t shared_place(std::uint32_t i, std::uint32_t round) {
  return (i * (2 * (round * 1021 + 77) + 1) + round * 977) % kSharedWords;
}
ODDRANK_HOST_DEVICE constexpr std::uint64_t shared_word(std::uint32_t i, std::uint32_t round) {
  return pattern(std::uint64_t{round} * kSharedWords + i, 0x5AFE5AFE5AFE5AFFu);
}

// Tensor cores: each of 8 warps adds up kTensorRounds products of 16 x 16 matrices.
inline constexpr std::uint32_t kTensorTile = 16;
inline constexpr std::uint32_t kTensorWarps = 8;
inline constexpr std::uint32_t kTensorRounds = 64;
// Element `column` of row `row` (of the left matrix below 16, of the right one from there on): -8
// to 7, so that no sum is beyond 65536.
ODDRANK_HOST_DEVICE constexpr std::uint64_t tensor_row(std::uint32_t warp, std::uint32_t round,
                                                       std::uint32_t row) {
  return pattern((std::uint64_t{warp} * kTensorRounds + round) * 2 * kTensorTile + row,
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

// One block of threads on one multiprocessor.
struct BlockPrint {
  std::uint32_t multiprocessor;
  std::uint32_t repeat;
  std::uint64_t hashes[kGpuUnitCount];
};

struct GpuPrints {
  int code = 0;                // 90: the machine code that ran is sm_90's
  int multiprocessors = 0;     // that the GPU has
  std::uint64_t computed = 0;  // blocks, of all repeats
  // Of the first repeat one block of each multiprocessor, of which one that differs from most comes
  // before others; of the later ones only such, up to a limit.
  std::vector<BlockPrint> prints;
};

// Repeats until `enough` has passed, at least once; blocks go where the GPU puts them, so a repeat
// launches again, a few times, until each multiprocessor has had one. Throws Error when a kernel
// fails or `deadline` passes. spoil: a unit that one thread gets wrong, for tests; -1: none.
GpuPrints gpu_fingerprint(int device, Deadline enough, Deadline deadline, int spoil = -1);

}  // namespace oddrank::selftest
