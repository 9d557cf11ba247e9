// Digests of tensors in a GPU's memory: the same bits as on the CPU.
#pragma once

#include <cuda_runtime_api.h>

#include "replicas/digest.hpp"

namespace oddrank::replicas {

// A tensor whose elements follow each other in the memory of a GPU.
struct GpuTensor {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};

// Puts kernels on `stream` of `device` that write a Digest for each tensor to `rows`, device memory
// aligned to 16 bytes. Never waits for the GPU, allocates nothing, and may be captured into a
// graph: addresses travel as arguments of kernels. Throws Error if one is not in the GPU's memory.
void gpu_digest(int device, cudaStream_t stream, const std::vector<GpuTensor>& tensors,
                std::uintptr_t rows);

}  // namespace oddrank::replicas
