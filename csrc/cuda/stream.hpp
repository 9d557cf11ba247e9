// An owned CUDA stream, and the one way to wait for it: with a deadline.
// C++17: included by .cu files.
#pragma once

#include <time.h>

#include <string>
#include <utility>

#include "base/clock.hpp"
#include "cuda/check.hpp"

namespace oddrank::cuda {

// Work on it is not ordered after the default stream's. Belongs to the device that was current when
// it was made.
class Stream {
 public:
  Stream() { ODDRANK_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  cudaStream_t get() const noexcept { return stream_; }
  // Forgets the stream: for work that does not end, since destroying what it uses would wait for
  // it.
  void abandon() noexcept { stream_ = nullptr; }

  // True when all work is done, false when the deadline came first. Throws what the work failed
  // with. Polls: cudaStreamSynchronize knows no deadline.
  bool wait(Deadline deadline) const {
    while (true) {
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state == cudaSuccess) return true;
      if (state != cudaErrorNotReady) throw_error(state, "work on the GPU");
      cudaGetLastError();  // "not ready" is kept as the last error, too
      if (deadline.passed()) return false;
      const timespec pause{0, 50'000};
      ::nanosleep(&pause, nullptr);
    }
  }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace oddrank::cuda
