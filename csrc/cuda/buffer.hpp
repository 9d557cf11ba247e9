// The choice of the GPU, and owned memory of a GPU and of its host.
// C++17: included by .cu files.
#pragma once

#include <cstddef>
#include <utility>

#include "cuda/check.hpp"

namespace oddrank::cuda {

// Makes `device` this thread's device. Creates its context, which may take a second.
inline void select_device(int device) { ODDRANK_CUDA_CHECK(cudaSetDevice(device)); }

// Returns this thread's device, -1 if it has none.
inline int current_device() noexcept {
  int device = -1;
  if (cudaGetDevice(&device) == cudaSuccess) return device;
  cudaGetLastError();
  return -1;
}

// cudaMalloc memory of the current device. Freeing waits for all work of the device: see abandon().
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    ODDRANK_CUDA_CHECK(cudaMalloc(&data_, bytes));
  }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_ != nullptr) cudaFree(data_);
  }

  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const noexcept { return bytes_; }
  // Forgets the memory. For work that does not end: cudaFree would wait for it.
  void abandon() noexcept { data_ = nullptr; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

// Page-locked host memory that the GPU reads and writes. Freeing waits for all work of the device:
// see abandon().
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
  // Forgets the memory, for work that does not end.
  void abandon() noexcept { data_ = nullptr; }

 private:
  void* data_ = nullptr;
};

}  // namespace oddrank::cuda
