// Digests of tensors in a GPU's memory: the same bits as on the CPU.
#pragma once

#include <cuda_runtime_api.h>

#include "replicas/digest.hpp"

namespace oddrank::replicas {

// Puts kernels on `stream` of `device` that write a Digest for each block of each range to `rows`,
// device memory aligned to 16 bytes. block: bytes, a multiple of kChunkBytes; 0: a range is one
// block. Returns the number of rows; with rows == 0 it launches nothing. Never waits for the GPU,
// allocates nothing, and may be captured into a graph: the ranges travel as arguments of kernels.
// Throws Error if `room`, in rows, is too small or an address is not in the GPU's memory.
std::size_t gpu_digest(int device, cudaStream_t stream, const std::vector<Range>& ranges,
                       std::uint64_t block, std::uintptr_t rows, std::size_t room);

}  // namespace oddrank::replicas
