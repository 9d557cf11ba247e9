// The digest on a GPU: a warp takes a run of chunks of all tensors, and adds to a tensor's row only
// when the run leaves it. Sums of 64-bit integers have the same bits in any order.
#include <algorithm>
#include <string>

#include "cuda/resources.hpp"
#include "replicas/gpu_digest.hpp"

namespace oddrank::replicas {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kDigestThreads = 256;
constexpr unsigned kDigestBlocksPerProcessor = 6;
// Arguments of a kernel have 4 KiB: so many tensors fit into one launch.
constexpr unsigned kMostTensors = 240;
// Words of a chunk that a lane takes, in loads of 16 bytes.
constexpr unsigned kLoads = kChunkWords / 2 / kWarp;
static_assert(kChunkWords == 2 * kWarp * kLoads);

struct Launch {
  Digest* rows;
  std::uint64_t chunks;  // chunks of all tensors
  std::uint64_t count;
  GpuTensor tensor[kMostTensors];
};
static_assert(sizeof(Launch) <= 4096, "what a kernel takes as arguments");
static_assert(kMostTensors <= kDigestThreads, "finish_rows() has one block");

__host__ __device__ std::uint64_t chunks_of(const GpuTensor& tensor) {
  return (tensor.bytes + kChunkBytes - 1) / kChunkBytes;
}

// Reads the word at any alignment; bytes beyond `left` are zeros.
__device__ std::uint64_t careful_word(const unsigned char* data, std::uint64_t left) {
  std::uint64_t word = 0;
  for (unsigned i = 0; i < kWordBytes && i < left; ++i) {
    word |= std::uint64_t{data[i]} << (8 * i);
  }
  return word;
}

__device__ void add_word(Digest& sums, std::uint64_t word, const std::uint64_t* keys, unsigned i) {
  sums.low += keyed_product(word, keys[i]);
  sums.high += keyed_product(word, keys[i + kKeyShift]);
}

// Returns this lane's part of the sums of a chunk of `bytes` bytes.
__device__ Digest lane_sums(const unsigned char* data, std::uint64_t bytes,
                            const std::uint64_t* keys, unsigned lane) {
  Digest sums;
  if (bytes == kChunkBytes && reinterpret_cast<std::uintptr_t>(data) % 16 == 0) {
    ulonglong2 pairs[kLoads];
    const auto* const from = reinterpret_cast<const ulonglong2*>(data) + lane;
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) pairs[k] = __ldcs(from + k * kWarp);
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) {
      const unsigned i = 2 * (k * kWarp + lane);
      add_word(sums, pairs[k].x, keys, i);
      add_word(sums, pairs[k].y, keys, i + 1);
    }
    return sums;
  }
  for (unsigned i = lane; i * kWordBytes < bytes; i += kWarp) {
    const std::uint64_t at = i * kWordBytes;
    add_word(sums, careful_word(data + at, bytes - at), keys, i);
  }
  return sums;
}

// Adds up the lanes' parts. Every lane has the result.
__device__ Digest over_warp(Digest sums) {
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    sums.low += __shfl_xor_sync(0xFFFFFFFFu, sums.low, distance);
    sums.high += __shfl_xor_sync(0xFFFFFFFFu, sums.high, distance);
  }
  return sums;
}

__device__ void add_to_row(Digest* row, const Digest& sum) {
  atomicAdd(reinterpret_cast<unsigned long long*>(&row->low), sum.low);
  atomicAdd(reinterpret_cast<unsigned long long*>(&row->high), sum.high);
}

__global__ void __launch_bounds__(kDigestThreads)
    digest_chunks(const __grid_constant__ Launch launch) {
  __shared__ __align__(16) std::uint64_t keys[kKeys];
  for (unsigned i = threadIdx.x; i < kKeys; i += blockDim.x) keys[i] = word_key(i);
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint64_t warps = std::uint64_t{gridDim.x} * (kDigestThreads / kWarp);
  const std::uint64_t warp =
      std::uint64_t{blockIdx.x} * (kDigestThreads / kWarp) + threadIdx.x / kWarp;
  const std::uint64_t each = (launch.chunks + warps - 1) / warps;
  std::uint64_t left = warp * each < launch.chunks ? min(each, launch.chunks - warp * each) : 0;
  if (left == 0) return;
  unsigned number = 0;
  std::uint64_t chunk = warp * each;  // from the tensor's begin
  while (chunk >= chunks_of(launch.tensor[number])) chunk -= chunks_of(launch.tensor[number++]);
  while (left > 0) {
    const GpuTensor& tensor = launch.tensor[number];
    // The run ends with the tensor, or with this warp's chunks.
    const std::uint64_t end = min(chunks_of(tensor), chunk + left);
    Digest sum;
    for (std::uint64_t i = chunk; i < end; ++i) {
      const std::uint64_t at = i * kChunkBytes;
      const auto* const data = reinterpret_cast<const unsigned char*>(tensor.address) + at;
      const std::uint64_t bytes = min(std::uint64_t{kChunkBytes}, tensor.bytes - at);
      sum += chunk_digest(over_warp(lane_sums(data, bytes, keys, lane)), i);
    }
    if (lane == 0) add_to_row(launch.rows + number, sum);
    left -= end - chunk;
    chunk = end;
    while (left > 0 && chunk >= chunks_of(launch.tensor[number])) {
      chunk -= chunks_of(launch.tensor[number++]);
    }
  }
}

__global__ void finish_rows(const __grid_constant__ Launch launch) {
  const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < launch.count) launch.rows[row] = finish(launch.rows[row], launch.tensor[row].bytes);
}

unsigned grid_of(int device, std::uint64_t chunks) {
  const std::uint64_t most =
      std::uint64_t{kDigestBlocksPerProcessor} * cuda::multiprocessors(device);
  const std::uint64_t needed = (chunks * kWarp + kDigestThreads - 1) / kDigestThreads;
  return static_cast<unsigned>(std::max<std::uint64_t>(1, std::min(needed, most)));
}

}  // namespace

void gpu_digest(int device, cudaStream_t stream, const std::vector<GpuTensor>& tensors,
                std::uintptr_t rows) {
  const cuda::OnDevice chosen(device);
  cuda::need_memory_of(device, rows, "digests");
  for (const GpuTensor& tensor : tensors) {
    if (tensor.bytes > 0) cuda::need_memory_of(device, tensor.address, "a tensor");
  }
  for (std::size_t first = 0; first < tensors.size(); first += kMostTensors) {
    Launch launch{};
    launch.rows = reinterpret_cast<Digest*>(rows) + first;
    launch.count = std::min<std::size_t>(kMostTensors, tensors.size() - first);
    for (std::size_t i = 0; i < launch.count; ++i) {
      launch.tensor[i] = tensors[first + i];
      launch.chunks += chunks_of(launch.tensor[i]);
    }
    ODDRANK_CUDA_CHECK(cudaMemsetAsync(launch.rows, 0, launch.count * sizeof(Digest), stream));
    if (launch.chunks > 0) {
      digest_chunks<<<grid_of(device, launch.chunks), kDigestThreads, 0, stream>>>(launch);
      cuda::launched("launch of digest_chunks");
    }
    finish_rows<<<1, kDigestThreads, 0, stream>>>(launch);
    cuda::launched("launch of finish_rows");
  }
}

}  // namespace oddrank::replicas
