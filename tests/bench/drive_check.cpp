// Drives csrc/bench/verify's checks on the fake GPU, whose kernels do nothing but count: takes the
// number of segments and of checks, prints one line of JSON.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/verify/verify.hpp"
#include "fake_gpu.hpp"

using namespace oddrank;

namespace {
int launches = 0;
}

// What nvcc's code for the host calls: kernels are registered, looked up and launched.
#define RUNTIME extern "C" __attribute__((visibility("default")))
RUNTIME void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
RUNTIME void __cudaRegisterFatBinaryEnd(void**) {}
RUNTIME void __cudaUnregisterFatBinary(void**) {}
RUNTIME void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*,
                                    void*, void*, int*) {}
RUNTIME char __cudaInitModule(void**) { return 0; }
RUNTIME unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 0; }
RUNTIME cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* at) {
  *grid = *block = dim3();
  *shared = 0;
  *static_cast<cudaStream_t*>(at) = nullptr;
  return cudaSuccess;
}
RUNTIME cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
RUNTIME cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return ++launches, cudaSuccess;
}
RUNTIME cudaError_t CUDARTAPI cudaLaunchKernel(const void*, dim3, dim3, void**, size_t,
                                               cudaStream_t) {
  return ++launches, cudaSuccess;  // before CUDA 13
}
RUNTIME cudaError_t CUDARTAPI cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return *data = std::malloc(bytes), cudaSuccess;
}
RUNTIME cudaError_t CUDARTAPI cudaFreeHost(void* data) { return std::free(data), cudaSuccess; }
RUNTIME cudaError_t CUDARTAPI cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}
RUNTIME cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* found, const void*) {
  *found = {};
  found->type = cudaMemoryTypeDevice;
  return cudaSuccess;
}

int main(int, char** given) {
  const int segments = std::atoi(given[1]), checks = std::atoi(given[2]);
  std::vector<bench::Placed> placed;
  for (int i = 0; i < segments; ++i) {
    const auto at = static_cast<std::uintptr_t>(4096 * (i + 1));
    placed.push_back({at, bench::make_segment("float32", "none", i, segments, 0, 1000, 1)});
  }
  std::uint64_t wrong = 0;
  for (int i = 0; i < checks; ++i) {
    bench::fill_on_device(0, placed, Deadline::after_ms(50000));
    for (const auto& one : bench::check_on_device(0, placed, Deadline::after_ms(50000))) {
      wrong += one.wrong;
    }
  }
  std::printf("{\"launches\": %d, \"allocations\": %d, \"streams\": %d, \"wrong\": %d}\n", launches,
              fake_state().allocations, fake_state().streams, static_cast<int>(wrong));
}
