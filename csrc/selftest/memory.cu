// Kernels that write and check a keyed pattern in the GPU's memory.
#include <algorithm>
#include <string>

#include "cuda/buffer.hpp"
#include "cuda/event.hpp"
#include "cuda/stream.hpp"
#include "selftest/memory.hpp"

namespace oddrank::selftest {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksPerProcessor = 8;  // 2048 threads: what one multiprocessor holds
constexpr unsigned kSamples = 64;

struct Sample {
  std::uint64_t index;
  std::uint64_t got;
};

// Filled by the GPU. `count` also hands out the slots, so a healthy run touches it never.
struct Found {
  unsigned long long count;
  Sample samples[kSamples];
};

__device__ void note(Found* found, std::uint64_t index, std::uint64_t got) {
  const unsigned long long slot = atomicAdd(&found->count, 1ULL);
  if (slot < kSamples) found->samples[slot] = {index, got};
}

// Pairs of words: 16 bytes a thread and step are what the memory system likes best.
__global__ void write_pattern(ulonglong2* pairs, std::size_t count, std::uint64_t seed,
                              std::uint64_t flip) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    pairs[i] = make_ulonglong2(pattern(2 * i, seed) ^ flip, pattern(2 * i + 1, seed) ^ flip);
  }
}

__global__ void check_pattern(const ulonglong2* pairs, std::size_t count, std::uint64_t seed,
                              std::uint64_t flip, Found* found) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const ulonglong2 pair = __ldcs(pairs + i);
    if (pair.x != (pattern(2 * i, seed) ^ flip)) note(found, 2 * i, pair.x);
    if (pair.y != (pattern(2 * i + 1, seed) ^ flip)) note(found, 2 * i + 1, pair.y);
  }
}

__global__ void damage_word(unsigned long long* word) { *word ^= 1; }

unsigned grid_of(int device, std::size_t work) {
  int processors = 0;
  ODDRANK_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const std::size_t needed = (work + kThreads - 1) / kThreads;
  return static_cast<unsigned>(std::min<std::size_t>(
      needed, std::size_t{kBlocksPerProcessor} * static_cast<unsigned>(processors)));
}

void launched(const char* kernel) { cuda::check(cudaGetLastError(), kernel); }

double faster(double before, double now) { return before == 0 ? now : std::min(before, now); }

// Adds what the GPU noted in one pass.
void add(Mismatches& sum, const Found& found, std::uint64_t seed, std::uint64_t flip) {
  if (found.count == 0) return;
  const auto known = std::min<std::size_t>(found.count, kSamples);
  const Sample& first =
      *std::min_element(found.samples, found.samples + known,
                        [](const Sample& a, const Sample& b) { return a.index < b.index; });
  if (sum.count == 0) {
    sum.index = first.index;
    sum.expected = pattern(first.index, seed) ^ flip;
    sum.got = first.got;
  }
  sum.count += found.count;
}

// The stream ends first, then the memory is freed: cudaFree of memory in use waits without a
// deadline.
struct Work {
  explicit Work(std::size_t bytes) : memory(bytes), found(sizeof(Found)) {}
  void wait(Deadline deadline, const char* what) {
    if (stream.wait(deadline)) return;
    memory.abandon();
    found.abandon();
    stream.abandon();
    throw Error(std::string(what) + ": the GPU did not finish before the deadline; " +
                cuda::place());
  }

  cuda::Buffer memory;
  cuda::Buffer found;
  cuda::Stream stream;
  cuda::Event begin, middle, end;
};

}  // namespace

MemoryResult verify_memory(int device, std::size_t bytes, std::uint64_t seed, Deadline deadline,
                           std::optional<std::size_t> damage) {
  const std::size_t pairs = bytes / sizeof(ulonglong2);
  if (pairs == 0) throw Error("a memory test needs at least 16 bytes");
  if (damage && *damage >= 2 * pairs) throw Error("there is no word to damage at that index");
  cuda::select_device(device);
  Work work(pairs * sizeof(ulonglong2));
  auto* const words = work.memory.as<ulonglong2>();
  auto* const found = work.found.as<Found>();
  const cudaStream_t stream = work.stream.get();
  const unsigned grid = grid_of(device, pairs);

  MemoryResult result;
  result.bytes = pairs * sizeof(ulonglong2);
  for (const std::uint64_t flip : kPasses) {
    ODDRANK_CUDA_CHECK(cudaMemsetAsync(found, 0, sizeof(Found), stream));
    work.begin.record(stream);
    write_pattern<<<grid, kThreads, 0, stream>>>(words, pairs, seed, flip);
    launched("launch of write_pattern");
    work.middle.record(stream);
    if (damage && flip == kPasses[0]) {
      damage_word<<<1, 1, 0, stream>>>(work.memory.as<unsigned long long>() + *damage);
      launched("launch of damage_word");
    }
    check_pattern<<<grid, kThreads, 0, stream>>>(words, pairs, seed, flip, found);
    launched("launch of check_pattern");
    work.end.record(stream);
    // Wait before the copy: a copy to pageable memory waits inside the driver, without a deadline.
    work.wait(deadline, "memory test");
    Found noted;
    ODDRANK_CUDA_CHECK(cudaMemcpy(&noted, found, sizeof noted, cudaMemcpyDeviceToHost));
    add(result.mismatches, noted, seed, flip);
    result.write_seconds =
        faster(result.write_seconds, cuda::seconds_between(work.begin, work.middle));
    result.read_seconds = faster(result.read_seconds, cuda::seconds_between(work.middle, work.end));
  }
  return result;
}

std::vector<double> time_copies(int device, std::size_t bytes, int repeats, Deadline deadline) {
  cuda::select_device(device);
  Work work(bytes);
  cuda::Buffer target(bytes);
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    work.begin.record(work.stream.get());
    ODDRANK_CUDA_CHECK(cudaMemcpyAsync(target.as<void>(), work.memory.as<void>(), bytes,
                                       cudaMemcpyDeviceToDevice, work.stream.get()));
    work.end.record(work.stream.get());
    try {
      work.wait(deadline, "copy");
    } catch (const Error&) {
      target.abandon();
      throw;
    }
    seconds.push_back(cuda::seconds_between(work.begin, work.end));
  }
  return seconds;
}

}  // namespace oddrank::selftest
