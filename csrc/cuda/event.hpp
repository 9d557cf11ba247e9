// An owned CUDA event with a time stamp.
// C++17: included by .cu files.
#pragma once

#include <utility>

#include "cuda/check.hpp"

namespace oddrank::cuda {

// Marks a point in a stream; the time between two of them is taken on the GPU.
class Event {
 public:
  Event() { ODDRANK_CUDA_CHECK(cudaEventCreate(&event_)); }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  cudaEvent_t get() const noexcept { return event_; }
  void record(cudaStream_t stream) { ODDRANK_CUDA_CHECK(cudaEventRecord(event_, stream)); }

 private:
  cudaEvent_t event_ = nullptr;
};

// Seconds from `begin` to `end`. Both must have happened: wait for the stream first.
inline double seconds_between(const Event& begin, const Event& end) {
  float milliseconds = 0;
  ODDRANK_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace oddrank::cuda
