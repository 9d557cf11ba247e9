// Kernels that write and check patterns in the GPU's memory.
#include <algorithm>

#include "cuda/buffer.hpp"
#include "cuda/event.hpp"
#include "cuda/wait.hpp"
#include "selftest/memory.hpp"

namespace oddrank::selftest {
namespace {

constexpr unsigned kPatternThreads = 256;
constexpr unsigned kPatternBlocksPerProcessor = 8;  // 2048 threads: what one multiprocessor holds
constexpr unsigned kSamples = 64;

struct Sample {
  std::uint64_t index;
  std::uint64_t got;
};

// Filled by the GPU. `count` also hands out the slots, so a healthy run touches it never.
struct Found {
  unsigned long long count;
  unsigned long long bits;
  Sample samples[kSamples];
};

__device__ void note(Found* found, std::uint64_t index, std::uint64_t expected, std::uint64_t got) {
  atomicOr(&found->bits, static_cast<unsigned long long>(expected ^ got));
  const unsigned long long slot = atomicAdd(&found->count, 1ULL);
  if (slot < kSamples) found->samples[slot] = {index, got};
}

// Pairs of words: 16 bytes a thread and step are what the memory system likes best.
template <Filling filling>
__global__ void write_pattern(ulonglong2* pairs, std::size_t count, std::uint64_t seed,
                              std::uint64_t flip) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    pairs[i] = make_ulonglong2(word_at<filling>(2 * i, seed) ^ flip,
                               word_at<filling>(2 * i + 1, seed) ^ flip);
  }
}

template <Filling filling>
__global__ void check_pattern(const ulonglong2* pairs, std::size_t count, std::uint64_t seed,
                              std::uint64_t flip, Found* found) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const ulonglong2 pair = __ldcs(pairs + i);
    const std::uint64_t first = word_at<filling>(2 * i, seed) ^ flip;
    const std::uint64_t second = word_at<filling>(2 * i + 1, seed) ^ flip;
    if (pair.x != first) note(found, 2 * i, first, pair.x);
    if (pair.y != second) note(found, 2 * i + 1, second, pair.y);
  }
}

__global__ void damage_word(unsigned long long* word) { *word ^= 1; }

unsigned grid_of(int device, std::size_t work) {
  int processors = 0;
  ODDRANK_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const std::size_t needed = (work + kPatternThreads - 1) / kPatternThreads;
  return static_cast<unsigned>(std::min<std::size_t>(
      needed, std::size_t{kPatternBlocksPerProcessor} * static_cast<unsigned>(processors)));
}

double faster(double before, double now) { return before == 0 ? now : std::min(before, now); }

// Adds what the GPU noted in one pass.
void add(Mismatches& sum, const Found& found, std::uint64_t seed, const Pass& pass) {
  if (found.count == 0) return;
  const auto known = std::min<std::size_t>(found.count, kSamples);
  const Sample& first =
      *std::min_element(found.samples, found.samples + known,
                        [](const Sample& a, const Sample& b) { return a.index < b.index; });
  if (sum.count == 0) {
    sum.index = first.index;
    with_filling(pass.filling, [&](auto filling) {
      sum.expected = word_at<decltype(filling)::value>(first.index, seed) ^ pass.flip;
    });
    sum.got = first.got;
    sum.pass = pass.name;
  }
  sum.count += found.count;
  sum.bits |= found.bits;
}

// One pass over `pairs`, on `stream`.
struct Launch {
  ulonglong2* words;
  std::size_t pairs;
  std::uint64_t seed;
  unsigned grid;
  cudaStream_t stream;

  void write(const Pass& pass) const {
    with_filling(pass.filling, [&](auto filling) {
      write_pattern<decltype(filling)::value>
          <<<grid, kPatternThreads, 0, stream>>>(words, pairs, seed, pass.flip);
    });
    cuda::launched("launch of write_pattern");
  }
  void check(const Pass& pass, Found* found) const {
    with_filling(pass.filling, [&](auto filling) {
      check_pattern<decltype(filling)::value>
          <<<grid, kPatternThreads, 0, stream>>>(words, pairs, seed, pass.flip, found);
    });
    cuda::launched("launch of check_pattern");
  }
};

}  // namespace

MemoryResult verify_memory(int device, std::size_t bytes, std::uint64_t seed, Deadline deadline,
                           std::size_t passes, std::optional<Damage> damage) {
  const std::size_t pairs = bytes / sizeof(ulonglong2);
  if (pairs == 0) throw Error("a memory test needs at least 16 bytes");
  if (damage && damage->index >= 2 * pairs) {
    throw Error("there is no word to damage at that index");
  }
  cuda::select_device(device);
  cuda::Buffer memory(pairs * sizeof(ulonglong2)), notes(sizeof(Found));
  // Destroyed first: what it still has to do ends before the memory is freed.
  cuda::Stream stream;
  cuda::Event begin, middle, end;
  auto* const found = notes.as<Found>();
  const Launch launch{memory.as<ulonglong2>(), pairs, seed, grid_of(device, pairs), stream.get()};

  MemoryResult result;
  result.bytes = pairs * sizeof(ulonglong2);
  for (std::size_t i = 0; i < std::min(passes, kAllPasses); ++i) {
    const Pass& pass = kPasses[i];
    ODDRANK_CUDA_CHECK(cudaMemsetAsync(found, 0, sizeof(Found), stream.get()));
    begin.record(stream.get());
    launch.write(pass);
    middle.record(stream.get());
    if (damage && damage->pass == i) {
      damage_word<<<1, 1, 0, stream.get()>>>(memory.as<unsigned long long>() + damage->index);
      cuda::launched("launch of damage_word");
    }
    launch.check(pass, found);
    end.record(stream.get());
    // Wait before the copy: a copy to pageable memory waits inside the driver, without a deadline.
    cuda::wait_or_abandon(stream, deadline, "memory test", memory, notes);
    Found noted;
    ODDRANK_CUDA_CHECK(cudaMemcpy(&noted, found, sizeof noted, cudaMemcpyDeviceToHost));
    add(result.mismatches, noted, seed, pass);
    result.write_seconds = faster(result.write_seconds, cuda::seconds_between(begin, middle));
    result.read_seconds = faster(result.read_seconds, cuda::seconds_between(middle, end));
  }
  return result;
}

std::vector<double> time_copies(int device, std::size_t bytes, int repeats, Deadline deadline) {
  cuda::select_device(device);
  cuda::Buffer source(bytes), target(bytes);
  cuda::Stream stream;
  cuda::Event begin, end;
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    begin.record(stream.get());
    ODDRANK_CUDA_CHECK(cudaMemcpyAsync(target.as<void>(), source.as<void>(), bytes,
                                       cudaMemcpyDeviceToDevice, stream.get()));
    end.record(stream.get());
    cuda::wait_or_abandon(stream, deadline, "copy", source, target);
    seconds.push_back(cuda::seconds_between(begin, end));
  }
  return seconds;
}

}  // namespace oddrank::selftest
