// Owned CUDA streams, events and memory, and waits for them with a deadline.
// C++17: included by .cu files.
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "cuda/runtime.hpp"
#include "os/clock.hpp"

namespace oddrank::cuda {

// A stream whose work is not ordered after the default stream's. Belongs to the device that was
// current when it was made.
class Stream {
 public:
  Stream() { ODDRANK_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  cudaStream_t get() const noexcept { return stream_; }
  // Forgets the stream. For work that does not end: destroying what it uses would wait for it.
  void abandon() noexcept { stream_ = nullptr; }

  // Returns whether all work was done by the deadline. Throws the error of failed work. Polls, for
  // cudaStreamSynchronize has no deadline.
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

// A point in a stream. The GPU takes the time between two of them.
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

// Returns the seconds from `begin` to `end`. Both must have happened: wait for the stream first.
inline double seconds_between(const Event& begin, const Event& end) {
  float milliseconds = 0;
  ODDRANK_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  return static_cast<double>(milliseconds) * 1e-3;
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

// Waits until all work on `stream` is done. At the deadline it abandons the stream and what the
// work holds (buffers, pinned memory), for freeing them would wait, and throws Error.
template <class... Held>
void wait_or_abandon(Stream& stream, Deadline deadline, const char* what, Held&... held) {
  if (stream.wait(deadline)) return;
  (held.abandon(), ...);
  stream.abandon();
  throw Error(std::string(what) + ": the GPU did not finish before the deadline; " + place());
}

inline unsigned multiprocessors(int device) {
  int count = 0;
  ODDRANK_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return static_cast<unsigned>(count);
}

// Throws Error unless `address`, which `what` has, is memory of this GPU: in a kernel an address of
// another GPU or of the host would break the context for good.
inline void need_memory_of(int device, std::uintptr_t address, const char* what) {
  cudaPointerAttributes found{};
  if (address != 0) {  // which CUDA may call an invalid value
    ODDRANK_CUDA_CHECK(cudaPointerGetAttributes(&found, reinterpret_cast<void*>(address)));
  }
  const bool ours = found.type == cudaMemoryTypeManaged ||
                    (found.type == cudaMemoryTypeDevice && found.device == device);
  if (ours) return;
  throw Error(std::string(what) + " is not in the memory of GPU " + std::to_string(device));
}

// Throws the error of the last kernel launch, if it failed.
inline void launched(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace oddrank::cuda
