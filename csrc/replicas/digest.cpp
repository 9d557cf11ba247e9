// Digests on the CPU: by several threads, with AVX2 where the machine has it, else portable code.
#include "replicas/digest.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "os/error.hpp"

namespace oddrank::replicas {
namespace {

static_assert(std::endian::native == std::endian::little, "words are taken as they lie in memory");

constexpr auto kTable = [] {
  std::array<std::uint64_t, kKeys> keys{};
  for (std::size_t i = 0; i < kKeys; ++i) keys[i] = word_key(i);
  return keys;
}();

std::uint64_t word_at(const unsigned char* data) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

// Adds words [first, words) of the chunk.
Digest portable_sums(const unsigned char* data, std::size_t first, std::size_t words,
                     Digest sums) noexcept {
  for (std::size_t i = first; i < words; ++i) {
    const std::uint64_t word = word_at(data + i * kWordBytes);
    sums.low += keyed_product(word, kTable[i]);
    sums.high += keyed_product(word, kTable[i + kKeyShift]);
  }
  return sums;
}

#if defined(__x86_64__)
#define ODDRANK_AVX2 __attribute__((target("avx2")))

ODDRANK_AVX2 inline __m256i vector_at(const void* data) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(data));
}

ODDRANK_AVX2 inline __m256i products(__m256i words, const std::uint64_t* keys) noexcept {
  const __m256i halves = _mm256_add_epi32(words, vector_at(keys));
  return _mm256_mul_epu32(halves, _mm256_srli_epi64(halves, 32));
}

ODDRANK_AVX2 inline std::uint64_t sum_of(__m256i lanes) noexcept {
  std::array<std::uint64_t, 4> each{};
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(each.data()), lanes);
  return each[0] + each[1] + each[2] + each[3];
}

// The hardware's prefetcher alone reads 10 to 20 % slower than memory can. Farther ahead is slower
// again (benchmarks/replicas/digest_speed.py). Beyond the tensor's end it does nothing.
constexpr std::size_t kPrefetchBytes = 512;

// A key vector is loaded once: the second sum's keys are the next vector's.
static_assert(kKeyShift == 4);
ODDRANK_AVX2 Digest avx2_sums(const unsigned char* data, std::size_t words) noexcept {
  constexpr std::size_t kStep = 8;
  __m256i low[2] = {}, high[2] = {};
  std::size_t i = 0;
  for (; i + kStep <= words; i += kStep) {
    const std::uint64_t* const keys = kTable.data() + i;
    __builtin_prefetch(data + i * kWordBytes + kPrefetchBytes);
    const __m256i first = vector_at(data + i * kWordBytes);
    const __m256i second = vector_at(data + i * kWordBytes + 32);
    low[0] = _mm256_add_epi64(low[0], products(first, keys));
    high[0] = _mm256_add_epi64(high[0], products(first, keys + 4));
    low[1] = _mm256_add_epi64(low[1], products(second, keys + 4));
    high[1] = _mm256_add_epi64(high[1], products(second, keys + 8));
  }
  const Digest sums{sum_of(_mm256_add_epi64(low[0], low[1])),
                    sum_of(_mm256_add_epi64(high[0], high[1]))};
  return portable_sums(data, i, words, sums);
}

std::atomic<bool> avx2{__builtin_cpu_supports("avx2") != 0};
#endif

// A thread's share at a time: long enough that taking it costs nothing.
constexpr std::uint64_t kTileBytes = 256 * kChunkBytes;

// Bytes [begin, end) of the tensor at `address`, and the row that their digest is added to.
struct Tile {
  std::uintptr_t address;
  std::uint64_t begin, end;
  std::size_t row;
};

// Takes tiles until none is left. `next` is shared by the threads; each adds to a row atomically.
void take_tiles(const std::vector<Tile>& tiles, std::atomic<std::size_t>& next,
                std::vector<Digest>& rows) noexcept {
  for (std::size_t number = next++; number < tiles.size(); number = next++) {
    const Tile& tile = tiles[number];
    Digest sum;
    for (std::uint64_t at = tile.begin; at < tile.end; at += kChunkBytes) {
      const auto* const data = std::bit_cast<const unsigned char*>(tile.address + at);
      const std::uint64_t length = std::min<std::uint64_t>(kChunkBytes, tile.end - at);
      sum += chunk_digest(chunk_sums(data, length), at / kChunkBytes);
    }
    std::atomic_ref(rows[tile.row].low) += sum.low;
    std::atomic_ref(rows[tile.row].high) += sum.high;
  }
}

}  // namespace

std::vector<Digest> digest_blocks(const std::vector<Range>& ranges, std::uint64_t block,
                                  int threads) {
  std::vector<std::uint64_t> sizes;
  std::vector<Tile> tiles;
  for (const auto& [address, begin, end] : ranges) {
    if (block % kChunkBytes != 0 || begin % kChunkBytes != 0 || end < begin ||
        (address == 0 && end > begin)) {
      throw Error("bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                  " in blocks of " + std::to_string(block) + ": blocks are multiples of " +
                  std::to_string(kChunkBytes) + " bytes, begin at one, and have memory");
    }
    std::uint64_t left = block == 0 ? 1 : (end - begin + block - 1) / block;
    for (std::uint64_t first = begin; left > 0; --left) {
      const std::uint64_t last = block == 0 ? end : std::min(first + block, end);
      for (std::uint64_t at = first; at < last; at += kTileBytes) {
        tiles.push_back({address, at, std::min(at + kTileBytes, last), sizes.size()});
      }
      sizes.push_back(last - first);
      first = last;
    }
  }
  std::vector<Digest> rows(sizes.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> helpers;
  const auto wanted = std::min(tiles.size(), static_cast<std::size_t>(std::max(1, threads)));
  try {
    while (helpers.size() + 1 < wanted)
      helpers.emplace_back([&] { take_tiles(tiles, next, rows); });
  } catch (const std::system_error&) {
    // No more threads for this process: those that exist do the work.
  }
  take_tiles(tiles, next, rows);
  for (std::thread& helper : helpers) helper.join();
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = finish(rows[i], sizes[i]);
  return rows;
}

bool use_avx2(bool wanted) noexcept {
#if defined(__x86_64__)
  avx2 = wanted && __builtin_cpu_supports("avx2") != 0;
  return avx2;
#else
  return wanted && false;
#endif
}

Digest chunk_sums(const unsigned char* data, std::size_t bytes) noexcept {
  const std::size_t words = bytes / kWordBytes;
#if defined(__x86_64__)
  Digest sums = avx2.load(std::memory_order_relaxed) ? avx2_sums(data, words)
                                                     : portable_sums(data, 0, words, {});
#else
  Digest sums = portable_sums(data, 0, words, {});
#endif
  if (const std::size_t rest = bytes % kWordBytes; rest != 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + words * kWordBytes, rest);
    sums.low += keyed_product(word, kTable[words]);
    sums.high += keyed_product(word, kTable[words + kKeyShift]);
  }
  return sums;
}

}  // namespace oddrank::replicas
