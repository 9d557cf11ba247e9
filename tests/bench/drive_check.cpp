// Drives csrc/bench/verify's checks on the fake GPU, whose kernels do nothing but count: takes the
// number of segments and of checks, prints one line of JSON.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/verify/verify.hpp"
#include "fake_gpu.hpp"

using namespace oddrank;

namespace {
int launches = 0, blocking_copies = 0;
bool finds_faults = false;
cudaStream_t pushed = nullptr;

// As device.cu lays out what its kernels take.
struct Launch {
  const void* pieces;
  unsigned number;
  std::uint64_t blocks;
  const void* tables;
  struct {
    unsigned long long wrong, first;
  } * found;
};

// Every second kernel is a check; it says that the first element of each segment is wrong.
cudaError_t launch(void** arguments) {
  if (++launches % 2 != 0 || !finds_faults) return cudaSuccess;
  const auto& given = *static_cast<const Launch*>(arguments[0]);
  for (unsigned i = 0; i < given.number; ++i) given.found[i] = {1, 0};
  return cudaSuccess;
}
}  // namespace

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
RUNTIME unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void* stream) {
  return pushed = static_cast<cudaStream_t>(stream), 0;
}
RUNTIME cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* at) {
  *grid = *block = dim3();
  *shared = 0;
  *static_cast<cudaStream_t*>(at) = pushed;
  return cudaSuccess;
}
RUNTIME cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
RUNTIME cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void** arguments, size_t,
                                       cudaStream_t stream) {
  cudaStreamSynchronize(stream);  // what it reads has been uploaded
  return launch(arguments);
}
RUNTIME cudaError_t CUDARTAPI cudaLaunchKernel(const void*, dim3, dim3, void** arguments, size_t,
                                               cudaStream_t stream) {
  cudaStreamSynchronize(stream);
  return launch(arguments);  // before CUDA 13
}
RUNTIME cudaError_t CUDARTAPI cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return *data = std::malloc(bytes), cudaSuccess;
}
RUNTIME cudaError_t CUDARTAPI cudaFreeHost(void* data) { return std::free(data), cudaSuccess; }
RUNTIME cudaError_t CUDARTAPI cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return ++blocking_copies, std::memcpy(to, from, bytes), cudaSuccess;
}
RUNTIME cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* found, const void*) {
  *found = {};
  found->type = cudaMemoryTypeDevice;
  found->device = 1;
  return cudaSuccess;
}

int main(int, char** given) {
  const int segments = std::atoi(given[1]), checks = std::atoi(given[2]);
  finds_faults = std::atoi(given[3]) != 0;
  std::vector<bench::Placed> placed;
  const std::vector<float> memory(1000, -1);
  for (int i = 0; i < segments; ++i) {
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
    placed.push_back({at, bench::make_segment("float32", "none", i, segments, 0, 1000, 1)});
  }
  std::uint64_t wrong = 0;
  for (int i = 0; i < checks; ++i) {
    bench::fill_on_device(1, placed, Deadline::after_ms(50000));
    for (const auto& one : bench::check_on_device(1, placed, Deadline::after_ms(50000))) {
      wrong += one.wrong > 0 && one.got == -1 ? 1 : 0;
    }
  }
  int device = -1;
  cudaGetDevice(&device);
  std::printf(
      "{\"launches\": %d, \"allocations\": %d, \"streams\": %d, \"wrong\": %d, "
      "\"blocking_copies\": %d, \"device\": %d}\n",
      launches, fake_state().allocations, fake_state().streams, static_cast<int>(wrong),
      blocking_copies, device);
}
