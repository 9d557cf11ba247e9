// The digest of a tensor: 128 bits, keyed by the position of each element, the same on CPU and GPU.
// C++17: included by .cu files.
//
// Digested are the bytes of the elements in row-major order: -0.0 and NaN are bits as all others.
// Bytes are taken as little-endian words of 64 bits; zeros fill up the last one. kChunkWords words
// are a chunk, the smallest tile. A chunk has two sums, each
//
//     sum over words i of (low half + low half of key) * (high half + high half of key)   mod 2^64
//
// where the halves are added mod 2^32: the hash NH of UMAC (Black and others, "UMAC: fast and
// secure message authentication", 1999). The second sum uses the same keys, kKeyShift words further
// on: the Toeplitz construction of the same paper. So two different chunks have both sums alike
// with probability 2^-64, taken over the keys. Both sums are mixed with the chunk's number and
// added to the digest: chunks may come in any order, by any threads. finish() adds the length.
//
// Not done: a defence against somebody who knows the keys and makes two tensors with one digest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "os/mix.hpp"

namespace oddrank::replicas {

inline constexpr std::size_t kChunkBytes = 4096;
inline constexpr std::size_t kWordBytes = 8;
inline constexpr std::size_t kChunkWords = kChunkBytes / kWordBytes;
inline constexpr std::size_t kKeyShift = 4;
inline constexpr std::size_t kKeys = kChunkWords + kKeyShift;

// Digests of tiles are added, in any order. A tile's begin is a multiple of kChunkBytes.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  ODDRANK_HOST_DEVICE constexpr Digest& operator+=(const Digest& other) noexcept {
    low += other.low;
    high += other.high;
    return *this;
  }
  constexpr bool operator==(const Digest& other) const noexcept {
    return low == other.low && high == other.high;
  }
};

// Returns the key of word `i` of every chunk; i < kKeys.
ODDRANK_HOST_DEVICE constexpr std::uint64_t word_key(std::uint64_t i) noexcept {
  return mix_bits((i + 1) * kMixStep);
}

// Returns one word's term in a sum of its chunk.
ODDRANK_HOST_DEVICE constexpr std::uint64_t keyed_product(std::uint64_t word,
                                                          std::uint64_t key) noexcept {
  const auto low = static_cast<std::uint32_t>(word) + static_cast<std::uint32_t>(key);
  const auto high =
      static_cast<std::uint32_t>(word >> 32U) + static_cast<std::uint32_t>(key >> 32U);
  return std::uint64_t{low} * high;
}

// Returns the term of the chunk with this number and these sums in the digest.
ODDRANK_HOST_DEVICE constexpr Digest chunk_digest(Digest sums, std::uint64_t number) noexcept {
  const std::uint64_t place = ~number * kMixStep;
  return {mix_bits(sums.low + mix_bits(place)), mix_bits(sums.high + mix_bits(place ^ kMixStep))};
}

// Returns the digest of `bytes` bytes whose chunks add up to `sum`.
ODDRANK_HOST_DEVICE constexpr Digest finish(Digest sum, std::uint64_t bytes) noexcept {
  const std::uint64_t length = mix_bits(bytes + kMixStep);
  return {mix_bits(sum.low ^ length), mix_bits(sum.high - length)};
}

// Bytes [begin, end) of a tensor whose elements follow each other in memory. begin is a multiple of
// kChunkBytes.
struct Range {
  std::uintptr_t address = 0;  // the tensor's
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Returns the digest of each block of `block` bytes of each range in host memory. block: a multiple
// of kChunkBytes, or 0: whole ranges. threads: how many may compute; small work takes fewer. Throws
// Error if that can't be.
std::vector<Digest> digest_blocks(const std::vector<Range>& ranges, std::uint64_t block,
                                  int threads);

// Returns both sums of the first `bytes` bytes of a chunk in host memory, at any alignment.
Digest chunk_sums(const unsigned char* data, std::size_t bytes) noexcept;
// Lets chunk_sums() use AVX2 or not, and returns whether it does: tests compare both.
bool use_avx2(bool wanted) noexcept;

}  // namespace oddrank::replicas
