// Owned CUDA streams, events and memory, and waits for them with a deadline.
// C++17: included by .cu files.
#pragma once

#include <time.h>

#include <cstdint>
#include <memory>

#include "cuda/runtime.hpp"
#include "os/clock.hpp"

namespace oddrank::cuda {

// Gives a unique_ptr's object back to CUDA.
template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* owned) const noexcept {
    destroy(owned);
  }
};

// A stream whose work is not ordered after the default stream's. Belongs to the device that was
// current when it was made.
class Stream {
 public:
  Stream() {
    cudaStream_t made = nullptr;
    ODDRANK_CUDA_CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    stream_.reset(made);
  }

  cudaStream_t get() const noexcept { return stream_.get(); }
  // Forgets the stream. For work that does not end: destroying its objects would wait for it.
  void abandon() noexcept { static_cast<void>(stream_.release()); }

  // Returns whether all work was done by the deadline. Throws the error of failed work. Polls, for
  // cudaStreamSynchronize has no deadline.
  bool wait(Deadline deadline) const {
    while (true) {
      const cudaError_t state = cudaStreamQuery(get());
      if (state == cudaSuccess) return true;
      if (state != cudaErrorNotReady) throw_error(state, "work on the GPU");
      cudaGetLastError();  // "not ready" is kept as the last error, too
      if (deadline.passed()) return false;
      const timespec pause{0, 50'000};
      ::nanosleep(&pause, nullptr);
    }
  }

 private:
  std::unique_ptr<CUstream_st, Destroy<cudaStreamDestroy>> stream_;
};

// A point in a stream. The GPU takes the time between two of them.
class Event {
 public:
  Event() {
    cudaEvent_t made = nullptr;
    ODDRANK_CUDA_CHECK(cudaEventCreate(&made));
    event_.reset(made);
  }

  cudaEvent_t get() const noexcept { return event_.get(); }
  void record(cudaStream_t stream) { ODDRANK_CUDA_CHECK(cudaEventRecord(get(), stream)); }

 private:
  std::unique_ptr<CUevent_st, Destroy<cudaEventDestroy>> event_;
};

// Returns the seconds from `begin` to `end`. Both must have happened: wait for the stream first.
inline double seconds_between(const Event& begin, const Event& end) {
  float milliseconds = 0;
  ODDRANK_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  return static_cast<double>(milliseconds) * 1e-3;
}

inline void* device_memory(std::size_t bytes) {
  void* data = nullptr;
  ODDRANK_CUDA_CHECK(cudaMalloc(&data, bytes));
  return data;
}

inline void* pinned_memory(std::size_t bytes) {
  void* data = nullptr;
  ODDRANK_CUDA_CHECK(cudaHostAlloc(&data, bytes, cudaHostAllocDefault));
  return data;
}

template <auto allocate, auto free>
class Memory {
 public:
  explicit Memory(std::size_t bytes) : data_(allocate(bytes)), bytes_(bytes) {}

  template <class T = void>
  T* as() const noexcept {
    return static_cast<T*>(data_.get());
  }
  std::size_t bytes() const noexcept { return bytes_; }
  // Forgets the memory, for work that does not end: freeing waits for all work of the device.
  void abandon() noexcept { static_cast<void>(data_.release()); }

 private:
  std::unique_ptr<void, Destroy<free>> data_;
  std::size_t bytes_;
};

// Memory of the current device.
using Buffer = Memory<device_memory, cudaFree>;
// Page-locked memory of the host, which the GPU reads and writes.
using PinnedBuffer = Memory<pinned_memory, cudaFreeHost>;

// Waits until all work on `stream` is done. At the deadline it abandons the stream and the work's
// memory (buffers, pinned), since freeing would wait, and throws Error.
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

// Throws Error unless `address`, an address of `what`, is memory of this GPU: in a kernel an
// address of another GPU or of the host would break the context for good.
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
