// Kernels that write and check patterns in the GPU's memory, or stream through it, timed on the
// GPU.

#include "cuda/resources.hpp"
#include "selftest/gpu_tests.hpp"

namespace oddrank::selftest {
namespace {

constexpr unsigned kPatternThreads = 256;
constexpr unsigned kPatternBlocksPerProcessor = 8;  // fills a multiprocessor: 2048 threads
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

// Pairs of words: the memory system is fastest with 16 bytes a thread and step.
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
  const std::size_t needed = (work + kPatternThreads - 1) / kPatternThreads;
  return static_cast<unsigned>(std::min<std::size_t>(
      needed, std::size_t{kPatternBlocksPerProcessor} * cuda::multiprocessors(device)));
}

double faster(double before, double now) { return before == 0 ? now : std::min(before, now); }

// Adds the mismatches of one pass.
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

MemoryResult verify_memory(int device, std::size_t bytes, std::uint64_t seed, Deadline enough,
                           Deadline deadline, std::size_t passes, std::optional<Damage> damage) {
  const std::size_t pairs = bytes / sizeof(ulonglong2);
  if (pairs == 0) throw Error("a memory test needs at least 16 bytes");
  if (damage && damage->index >= 2 * pairs) {
    throw Error("damage: the index is beyond the memory");
  }
  const cuda::OnDevice chosen(device);
  cuda::Buffer memory(pairs * sizeof(ulonglong2)), notes(sizeof(Found));
  cuda::PinnedBuffer noted(sizeof(Found));
  // Destroyed first: its work ends before the memory is freed.
  cuda::Stream stream;
  cuda::Event begin, middle, end;
  auto* const found = notes.as<Found>();
  const Launch launch{memory.as<ulonglong2>(), pairs, seed, grid_of(device, pairs), stream.get()};

  MemoryResult result;
  result.bytes = pairs * sizeof(ulonglong2);
  for (std::size_t i = 0; i < std::min(passes, kAllPasses); ++i) {
    if (i > 0 && enough.passed()) break;
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
    // To page-locked memory: another copy would wait inside the driver, without a deadline.
    ODDRANK_CUDA_CHECK(
        cudaMemcpyAsync(noted.as(), found, sizeof(Found), cudaMemcpyDeviceToHost, stream.get()));
    cuda::wait_or_abandon(stream, deadline, "memory test", memory, notes, noted);
    add(result.mismatches, *noted.as<Found>(), seed, pass);
    result.write_seconds = faster(result.write_seconds, cuda::seconds_between(begin, middle));
    result.read_seconds = faster(result.read_seconds, cuda::seconds_between(middle, end));
    ++result.passes;
  }
  return result;
}

namespace {

constexpr unsigned kStreamThreads = 512;
constexpr unsigned kStreamBlocksPerProcessor = 4;  // fills a multiprocessor: 2048 threads
constexpr unsigned kInFlight = 4;                  // loads of 16 bytes that a thread has under way
constexpr int kStreamPasses = 4;                   // per repeat: one launch alone would show in it

// A block of threads takes tiles of kStreamThreads * kInFlight words; count is a multiple of that.
constexpr std::size_t kStreamTile = std::size_t{kStreamThreads} * kInFlight;

__device__ void load(uint4 (&values)[kInFlight], const uint4* words, std::size_t tile) {
#pragma unroll
  for (unsigned k = 0; k < kInFlight; ++k) {
    values[k] = __ldcs(words + tile + k * kStreamThreads + threadIdx.x);
  }
}

__device__ void store(uint4* words, std::size_t tile, const uint4 (&values)[kInFlight]) {
#pragma unroll
  for (unsigned k = 0; k < kInFlight; ++k) {
    __stcs(words + tile + k * kStreamThreads + threadIdx.x, values[k]);
  }
}

// The sum of the words read is stored if it is a value that it never has: without a use of the sum
// the compiler would drop the loads.
__global__ void __launch_bounds__(kStreamThreads)
    read_words(const uint4* words, std::size_t count, unsigned never, unsigned* sink) {
  unsigned sum = 0;
  for (std::size_t tile = blockIdx.x * kStreamTile; tile < count; tile += gridDim.x * kStreamTile) {
    uint4 values[kInFlight];
    load(values, words, tile);
#pragma unroll
    for (const uint4& value : values) sum |= value.x | value.y | value.z | value.w;
  }
  if (sum == never) *sink = sum;
}

__global__ void __launch_bounds__(kStreamThreads)
    write_words(uint4* words, std::size_t count, unsigned value) {
  const uint4 word = make_uint4(value, value, value, value);
  const uint4 values[kInFlight] = {word, word, word, word};
  for (std::size_t tile = blockIdx.x * kStreamTile; tile < count; tile += gridDim.x * kStreamTile) {
    store(words, tile, values);
  }
}

__global__ void __launch_bounds__(kStreamThreads)
    copy_words(uint4* target, const uint4* source, std::size_t count) {
  for (std::size_t tile = blockIdx.x * kStreamTile; tile < count; tile += gridDim.x * kStreamTile) {
    uint4 values[kInFlight];
    load(values, source, tile);
    store(target, tile, values);
  }
}

// Returns the seconds of `work(stream)` in each repeat, which does it `passes` times, without the
// first one: clocks and pages come up.
template <class Work, class... Held>
std::vector<double> time_each(int passes, int repeats, cuda::Stream& stream, Deadline deadline,
                              const char* what, const Work& work, Held&... held) {
  cuda::Event begin, end;
  std::vector<double> seconds;
  for (int i = -1; i < repeats; ++i) {
    begin.record(stream.get());
    for (int pass = 0; pass < passes; ++pass) work(stream.get());
    end.record(stream.get());
    cuda::wait_or_abandon(stream, deadline, what, held...);
    if (i >= 0) seconds.push_back(cuda::seconds_between(begin, end) / passes);
  }
  return seconds;
}

}  // namespace

std::vector<double> time_copies(int device, std::size_t bytes, int repeats, Deadline deadline) {
  const cuda::OnDevice chosen(device);
  cuda::Buffer source(bytes), target(bytes);
  cuda::Stream stream;
  const auto copy = [&](cudaStream_t on) {
    ODDRANK_CUDA_CHECK(
        cudaMemcpyAsync(target.as(), source.as(), bytes, cudaMemcpyDeviceToDevice, on));
  };
  return time_each(1, repeats, stream, deadline, "copy", copy, source, target);
}

MemoryTimes time_device_memory(int device, std::size_t bytes, int repeats, Deadline deadline) {
  const std::size_t count = bytes / sizeof(uint4) / kStreamTile * kStreamTile;
  if (count == 0) throw Error("a bandwidth test needs at least 32 KiB");
  const cuda::OnDevice chosen(device);
  cuda::Buffer first(count * sizeof(uint4)), second(count * sizeof(uint4));
  // Destroyed first: its work ends before the memory is freed.
  cuda::Stream stream;
  auto* const words = first.as<uint4>();
  auto* const others = second.as<uint4>();
  const unsigned grid = kStreamBlocksPerProcessor * cuda::multiprocessors(device);

  const auto write = [&](cudaStream_t on) {
    write_words<<<grid, kStreamThreads, 0, on>>>(words, count, 0x5A5A5A5Au);
    cuda::launched("launch of write_words");
  };
  const auto read = [&](cudaStream_t on) {
    read_words<<<grid, kStreamThreads, 0, on>>>(words, count, 0xFFFFFFFFu, second.as<unsigned>());
    cuda::launched("launch of read_words");
  };
  const auto copy = [&](cudaStream_t on) {
    copy_words<<<grid, kStreamThreads, 0, on>>>(others, words, count);
    cuda::launched("launch of copy_words");
  };
  const auto time = [&](const char* what, const auto& work) {
    return time_each(kStreamPasses, repeats, stream, deadline, what, work, first, second);
  };
  MemoryTimes times;
  times.bytes = count * sizeof(uint4);
  times.write = time("memory writes", write);
  times.read = time("memory reads", read);
  times.copy = time("memory copies", copy);
  return times;
}

TransferTimes time_transfers(int device, std::size_t bytes, int repeats, Deadline deadline) {
  if (bytes == 0) throw Error("a transfer needs at least one byte");
  const cuda::OnDevice chosen(device);
  cuda::Buffer there(bytes);
  cuda::PinnedBuffer here(bytes);
  cuda::Stream stream;
  const auto to_device = [&](cudaStream_t on) {
    ODDRANK_CUDA_CHECK(cudaMemcpyAsync(there.as(), here.as(), bytes, cudaMemcpyHostToDevice, on));
  };
  const auto to_host = [&](cudaStream_t on) {
    ODDRANK_CUDA_CHECK(cudaMemcpyAsync(here.as(), there.as(), bytes, cudaMemcpyDeviceToHost, on));
  };
  TransferTimes times;
  times.bytes = bytes;
  times.to_device =
      time_each(1, repeats, stream, deadline, "copies to the GPU", to_device, there, here);
  times.to_host =
      time_each(1, repeats, stream, deadline, "copies to the host", to_host, there, here);
  return times;
}

}  // namespace oddrank::selftest
