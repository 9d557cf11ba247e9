// Arithmetic whose bits are known beforehand, on every multiprocessor. No atomics, fixed order.
#include <mma.h>

#include <iterator>
#include <map>
#include <set>

#include "cuda/resources.hpp"
#include "selftest/gpu_tests.hpp"

namespace oddrank::selftest {
namespace {

namespace wmma = nvcuda::wmma;

constexpr unsigned kPrintThreads = kFingerprintLanes;
// With 33 KiB each, so many fill most of a multiprocessor's shared memory.
constexpr unsigned kPrintBlocksPerProcessor = 6;
constexpr int kMostLaunches = 8;
constexpr std::size_t kMostPrints = 4096;
static_assert(kPrintThreads == 32 * kTensorWarps);

// Bytes of a warp's matrices of one product and their sum; floats are the widest elements.
struct Tiles {
  float left[kTensorTile * kTensorTile];
  float right[kTensorTile * kTensorTile];
  float sum[kTensorTile * kTensorTile];
};

// One after the other: shared_words, or the tiles of all warps; then the lanes' hashes.
union Arena {
  std::uint64_t words[kSharedWords];
  Tiles tiles[kTensorWarps];
};

__device__ unsigned multiprocessor() {
  unsigned id = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

// Folds the lanes' hashes in their order, in one thread, which has the result.
__device__ std::uint64_t fold_lanes(std::uint64_t* lanes, std::uint64_t mine) {
  lanes[threadIdx.x] = mine;
  __syncthreads();
  std::uint64_t hash = 0;
  if (threadIdx.x == 0) {
    for (unsigned lane = 0; lane < kPrintThreads; ++lane) hash = fold(hash, lanes[lane]);
  }
  __syncthreads();
  return hash;
}

__device__ std::uint64_t shared_lane(std::uint64_t* words) {
  std::uint64_t hash = threadIdx.x;
  for (unsigned round = 0; round < kSharedRounds; ++round) {
    for (unsigned i = threadIdx.x; i < kSharedWords; i += kPrintThreads) {
      words[shared_place(i, round)] = shared_word(i, round);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < kSharedWords; i += kPrintThreads)
      hash = fold(hash, words[i]);
    __syncthreads();
  }
  return hash;
}

// T as the matrices have it in memory, Fragment as the tensor core takes it; depth: one product's.
template <class T, class Fragment, class Sum, unsigned depth>
__device__ std::uint64_t tensor_lane(Tiles& tiles) {
  const unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  auto* const left = reinterpret_cast<T*>(tiles.left);
  auto* const right = reinterpret_cast<T*>(tiles.right);
  T* const row =
      lane < kTensorTile ? left + lane * kTensorTile : right + (lane - kTensorTile) * kTensorTile;
  wmma::fragment<wmma::accumulator, 16, 16, depth, Sum> sum;
  wmma::fill_fragment(sum, Sum(0));
  for (unsigned round = 0; round < kTensorRounds; ++round) {
    const std::uint64_t elements = tensor_row(warp, round, lane);
#pragma unroll
    for (unsigned k = 0; k < kTensorTile; ++k) row[k] = T(tensor_element(elements, k));
    __syncwarp();
#pragma unroll
    for (unsigned part = 0; part < kTensorTile; part += depth) {
      wmma::fragment<wmma::matrix_a, 16, 16, depth, Fragment, wmma::row_major> a;
      wmma::fragment<wmma::matrix_b, 16, 16, depth, Fragment, wmma::row_major> b;
      wmma::load_matrix_sync(a, left + part, kTensorTile);
      wmma::load_matrix_sync(b, right + part * kTensorTile, kTensorTile);
      wmma::mma_sync(sum, a, b, sum);
    }
    __syncwarp();
  }
  auto* const sums = reinterpret_cast<Sum*>(tiles.sum);
  wmma::store_matrix_sync(sums, sum, kTensorTile, wmma::mem_row_major);
  __syncwarp();
  std::uint64_t hash = threadIdx.x;
  for (unsigned k = 0; k < 8; ++k) {
    hash = fold(hash, __float_as_uint(static_cast<float>(sums[lane * 8 + k])));
  }
  __syncthreads();  // the hashes come to where the tiles are
  return hash;
}

__device__ std::uint64_t lane_of(unsigned unit, Arena& arena) {
  Tiles& tiles = arena.tiles[threadIdx.x / 32];
  switch (unit) {
    case 3:
      return shared_lane(arena.words);
    case 4:
      return tensor_lane<__half, __half, float, 16>(tiles);
// Formats that this architecture lacks are left out: see has_unit().
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    case 5:
      return tensor_lane<__nv_bfloat16, __nv_bfloat16, float, 16>(tiles);
    case 6:
      return tensor_lane<float, wmma::precision::tf32, float, 8>(tiles);
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 720
    case 7:
      return tensor_lane<signed char, signed char, int, 16>(tiles);
#endif
    default:
      return fingerprint_lane(static_cast<Unit>(unit), threadIdx.x);
  }
}

__global__ void __launch_bounds__(kPrintThreads)
    fingerprint_blocks(BlockPrint* prints, unsigned repeat, unsigned spoil) {
  __shared__ __align__(128) Arena arena;
  BlockPrint& print = prints[blockIdx.x];
  for (unsigned unit = 0; unit < kGpuUnitCount; ++unit) {
    std::uint64_t mine = lane_of(unit, arena);
    if (unit == spoil && blockIdx.x == 0 && threadIdx.x == 5) mine ^= 1;
    const std::uint64_t hash = fold_lanes(arena.words, mine);
    if (threadIdx.x == 0) print.hashes[unit] = hash;
  }
  if (threadIdx.x == 0) {
    print.multiprocessor = multiprocessor();
    print.repeat = repeat;
  }
}

// Returns each unit's most frequent hash.
std::vector<std::uint64_t> usual_of(const std::vector<BlockPrint>& prints) {
  std::vector<std::uint64_t> usual;
  for (std::size_t unit = 0; unit < kGpuUnitCount; ++unit) {
    std::map<std::uint64_t, std::size_t> counts;
    for (const BlockPrint& print : prints) ++counts[print.hashes[unit]];
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    usual.push_back(most->first);
  }
  return usual;
}

// Returns the blocks that differ from the most frequent hashes.
std::vector<BlockPrint> odd_of(const std::vector<BlockPrint>& prints,
                               const std::vector<std::uint64_t>& usual) {
  std::vector<BlockPrint> odd;
  std::copy_if(prints.begin(), prints.end(), std::back_inserter(odd), [&](const auto& print) {
    return !std::equal(usual.begin(), usual.end(), print.hashes);
  });
  return odd;
}

}  // namespace

GpuPrints gpu_fingerprint(int device, Deadline enough, Deadline deadline, int spoil) {
  const cuda::OnDevice chosen(device);
  GpuPrints result;
  result.multiprocessors = static_cast<int>(cuda::multiprocessors(device));
  cudaFuncAttributes code{};
  ODDRANK_CUDA_CHECK(cudaFuncGetAttributes(&code, fingerprint_blocks));
  result.code = code.ptxVersion;
  const unsigned blocks = kPrintBlocksPerProcessor * static_cast<unsigned>(result.multiprocessors);
  cuda::Buffer buffer(blocks * sizeof(BlockPrint));
  cuda::PinnedBuffer here(buffer.bytes());
  // Destroyed first: its work ends before the memory is freed.
  cuda::Stream stream;

  const auto launch = [&](unsigned repeat) {
    fingerprint_blocks<<<blocks, kPrintThreads, 0, stream.get()>>>(buffer.as<BlockPrint>(), repeat,
                                                                   static_cast<unsigned>(spoil));
    cuda::launched("launch of fingerprint_blocks");
    ODDRANK_CUDA_CHECK(cudaMemcpyAsync(here.as(), buffer.as(), buffer.bytes(),
                                       cudaMemcpyDeviceToHost, stream.get()));
    cuda::wait_or_abandon(stream, deadline, "fingerprint", buffer, here);
    result.computed += blocks;
    return std::vector<BlockPrint>(here.as<BlockPrint>(), here.as<BlockPrint>() + blocks);
  };

  std::vector<std::uint64_t> usual;
  unsigned repeat = 0;
  do {
    std::set<std::uint32_t> seen;
    for (int i = 0; i < kMostLaunches; ++i) {
      const std::vector<BlockPrint> prints = launch(repeat);
      if (usual.empty()) usual = usual_of(prints);
      const std::vector<BlockPrint> odd = odd_of(prints, usual);
      if (result.prints.size() < kMostPrints) {
        result.prints.insert(result.prints.end(), odd.begin(), odd.end());
      }
      if (repeat == 0) {
        for (const BlockPrint& print : odd) seen.insert(print.multiprocessor);
      }
      for (const BlockPrint& print : prints) {
        const bool fresh = seen.insert(print.multiprocessor).second;
        if (fresh && repeat == 0) result.prints.push_back(print);
      }
      if (static_cast<int>(seen.size()) >= result.multiprocessors) break;
    }
    ++repeat;
  } while (!enough.passed());
  return result;
}

}  // namespace oddrank::selftest
