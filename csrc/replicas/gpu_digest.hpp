// Digests of tensors in a GPU's memory: the same bits as those of tensors.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace oddrank::replicas {

// Bytes [begin, end) of a tensor whose elements follow each other in the memory of a GPU. begin is
// a multiple of kChunkBytes.
struct GpuRange {
  std::uintptr_t address = 0;  // of the tensor
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Puts kernels on `stream` of `device` that write a Digest for each block of each range to `rows`,
// device memory aligned to 16 bytes. block: bytes, a multiple of kChunkBytes; 0: a range is one
// block. Returns the number of rows; with rows == 0 it launches nothing. Never waits for the GPU,
// allocates nothing, and may be captured into a graph: the ranges travel as arguments of kernels.
// Throws Error if `room`, in rows, is too small or an address is not in the GPU's memory.
std::size_t gpu_digest(int device, cudaStream_t stream, const std::vector<GpuRange>& ranges,
                       std::uint64_t block, std::uintptr_t rows, std::size_t room);

}  // namespace oddrank::replicas
