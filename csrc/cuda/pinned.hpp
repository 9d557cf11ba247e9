// Owned memory of the host that the GPU reads and writes by itself.
// C++17: included by .cu files.
#pragma once

#include <cstddef>

#include "cuda/check.hpp"

namespace oddrank::cuda {

// Page-locked; freeing waits for all work of the device: see abandon().
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes) {
    ODDRANK_CUDA_CHECK(cudaHostAlloc(&data_, bytes, cudaHostAllocDefault));
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer() {
    if (data_ != nullptr) cudaFreeHost(data_);
  }

  void* data() const noexcept { return data_; }
  // Forgets the memory: for work that does not end.
  void abandon() noexcept { data_ = nullptr; }

 private:
  void* data_ = nullptr;
};

}  // namespace oddrank::cuda
