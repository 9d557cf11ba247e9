// Kernels that stream through the GPU's memory, and copies to and from its host, timed on the GPU.
#include "cuda/buffer.hpp"
#include "cuda/event.hpp"
#include "cuda/pinned.hpp"
#include "cuda/wait.hpp"
#include "selftest/bandwidth.hpp"

namespace oddrank::selftest {
namespace {

constexpr unsigned kStreamThreads = 512;
constexpr unsigned kStreamBlocksPerProcessor = 4;  // 2048 threads: what one multiprocessor holds
constexpr unsigned kInFlight = 4;                  // loads of 16 bytes that a thread has under way
constexpr int kStreamPasses = 4;                   // of a repeat: one launch alone would show in it
constexpr int kTransferPasses = 1;                 // slow enough for one

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

// What is read must matter, or no load is left: its sum is stored where it is a value that the
// memory, all of one word, never adds up to.
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

unsigned grid_of_device(int device) {
  int processors = 0;
  ODDRANK_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  return kStreamBlocksPerProcessor * static_cast<unsigned>(processors);
}

// Seconds of each repeat of `work(stream)`; the first one is not told: clocks and pages come up.
template <int passes, class Work, class... Held>
std::vector<double> time_each(int repeats, cuda::Stream& stream, Deadline deadline,
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

DeviceMemoryTimes time_device_memory(int device, std::size_t bytes, int repeats,
                                     Deadline deadline) {
  const std::size_t count = bytes / sizeof(uint4) / kStreamTile * kStreamTile;
  if (count == 0) throw Error("a bandwidth test needs at least 32 KiB");
  cuda::select_device(device);
  cuda::Buffer first(count * sizeof(uint4)), second(count * sizeof(uint4));
  // Destroyed first: what it still has to do ends before the memory is freed.
  cuda::Stream stream;
  auto* const words = first.as<uint4>();
  auto* const others = second.as<uint4>();
  const unsigned grid = grid_of_device(device);

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
  DeviceMemoryTimes times;
  times.bytes = count * sizeof(uint4);
  times.write =
      time_each<kStreamPasses>(repeats, stream, deadline, "memory writes", write, first, second);
  times.read =
      time_each<kStreamPasses>(repeats, stream, deadline, "memory reads", read, first, second);
  times.copy =
      time_each<kStreamPasses>(repeats, stream, deadline, "memory copies", copy, first, second);
  return times;
}

TransferTimes time_transfers(int device, std::size_t bytes, int repeats, Deadline deadline) {
  if (bytes == 0) throw Error("a transfer needs at least one byte");
  cuda::select_device(device);
  cuda::Buffer there(bytes);
  cuda::PinnedBuffer here(bytes);
  cuda::Stream stream;
  const auto to_device = [&](cudaStream_t on) {
    ODDRANK_CUDA_CHECK(
        cudaMemcpyAsync(there.as<void>(), here.data(), bytes, cudaMemcpyHostToDevice, on));
  };
  const auto to_host = [&](cudaStream_t on) {
    ODDRANK_CUDA_CHECK(
        cudaMemcpyAsync(here.data(), there.as<void>(), bytes, cudaMemcpyDeviceToHost, on));
  };
  TransferTimes times;
  times.bytes = bytes;
  times.to_device = time_each<kTransferPasses>(repeats, stream, deadline, "copies to the GPU",
                                               to_device, there, here);
  times.to_host = time_each<kTransferPasses>(repeats, stream, deadline, "copies to the host",
                                             to_host, there, here);
  return times;
}

}  // namespace oddrank::selftest
