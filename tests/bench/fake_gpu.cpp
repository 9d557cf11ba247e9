// A fake GPU and an NCCL of one rank: streams are queues. An operation takes 5 us of a clock that
// only ends of operations move. Each query of a stream or an event lets the GPU do some work. Tests
// the logic of csrc/bench/nccl; gpu-check tests real ones.
#include "fake_gpu.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace {

struct Item {
  std::function<void()> work;  // runs at its end
  bool is_operation;
  std::uint64_t number;
};
struct FakeStream {
  std::deque<Item> queue;
};
struct FakeEvent {
  double us = 0;
  int pending = 0;
  FakeStream* stream = nullptr;
};

std::recursive_mutex mutex;
FakeState state;
double clock_us = 0;
std::uint64_t operations = 0, in_flight = 0;
int group_depth = 0;
int first, twin;
int splitting = 0;  // queries until the twin is handed out
ncclComm_t* handed_out = nullptr;
thread_local int current_device = 0;  // as CUDA has it: each thread begins on GPU 0

bool lost() { return state.loses_gpu && operations > state.hangs_at; }

bool stuck(const Item& item) {
  return item.is_operation && item.number == state.hangs_at &&
         (state.aborts == 0 || state.survives_abort);
}

void advance(FakeStream& stream) {
  for (int i = 0; i < 2 && !stream.queue.empty() && !stuck(stream.queue.front()); ++i) {
    const Item item = stream.queue.front();
    stream.queue.pop_front();
    if (item.is_operation) {
      clock_us += 5;
      --in_flight;
    }
    item.work();
  }
}

void put(FakeStream& stream, std::function<void()> work, bool is_operation) {
  if (is_operation) {
    ++in_flight;
    state.most_in_flight = std::max(state.most_in_flight, in_flight);
  }
  stream.queue.push_back({std::move(work), is_operation, is_operation ? operations++ : 0});
}

FakeStream& fake(cudaStream_t stream) { return *reinterpret_cast<FakeStream*>(stream); }

// A real NCCL would make a context on the thread's GPU.
void enter_nccl() {
  const std::lock_guard lock(mutex);
  if (current_device != state.device) ++state.wrong_device;
}

ncclResult_t operate(const void* from, void* to, std::size_t bytes, cudaStream_t stream) {
  enter_nccl();
  while (operations == state.blocks_at) ::pause();  // hangs inside NCCL
  const std::lock_guard lock(mutex);
  state.windows.push_back(reinterpret_cast<std::uintptr_t>(to));
  const auto work = [=] {
    if (from != to) std::memcpy(to, from, bytes);
  };
  put(fake(stream), work, true);
  return ncclSuccess;
}

}  // namespace

FakeState& fake_state() { return state; }
// For Python: the receive buffer of the operation with this number; 0 if there was none.
extern "C" std::uintptr_t fake_window(std::size_t number) {
  return number < state.windows.size() ? state.windows[number] : 0;
}
extern "C" int fake_nccl_allocations() { return state.nccl_allocations; }

#define CUDA_FAKE extern "C" __attribute__((visibility("default"))) cudaError_t CUDARTAPI
CUDA_FAKE cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }
CUDA_FAKE cudaSetDevice(int device) {
  return current_device = device, lost() ? cudaErrorIllegalAddress : cudaSuccess;
}
CUDA_FAKE cudaGetLastError() { return cudaSuccess; }
CUDA_FAKE cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
CUDA_FAKE cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
CUDA_FAKE cudaGetDeviceCount(int* count) { return *count = 2, cudaSuccess; }
CUDA_FAKE cudaGetDeviceProperties(cudaDeviceProp*, int) { return cudaSuccess; }
CUDA_FAKE cudaDeviceGetPCIBusId(char*, int, int) { return cudaSuccess; }
CUDA_FAKE cudaMemGetInfo(size_t* free, size_t* total) { return *free = *total = 1, cudaSuccess; }
CUDA_FAKE cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  return *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0, cudaSuccess;
}
extern "C" const char* cudaGetErrorName(cudaError_t) { return "cudaErrorFake"; }
extern "C" const char* cudaGetErrorString(cudaError_t) { return "a fake error"; }
CUDA_FAKE cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ++state.streams;
  return *stream = reinterpret_cast<cudaStream_t>(new FakeStream), cudaSuccess;
}
CUDA_FAKE cudaStreamDestroy(cudaStream_t stream) { return delete &fake(stream), cudaSuccess; }
CUDA_FAKE cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  while (!fake(stream).queue.empty() && !stuck(fake(stream).queue.front())) advance(fake(stream));
  return cudaSuccess;
}
CUDA_FAKE cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (lost()) return cudaErrorIllegalAddress;
  advance(fake(stream));
  return fake(stream).queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
CUDA_FAKE cudaMalloc(void** data, size_t bytes) {
  return ++state.allocations, *data = std::malloc(bytes), cudaSuccess;
}
CUDA_FAKE cudaFree(void* data) {
  if (in_flight > 0) ++state.freed_in_use;
  return std::free(data), cudaSuccess;
}
static cudaError_t later(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  return put(fake(stream), std::move(work), false), cudaSuccess;
}
CUDA_FAKE cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return later(stream, [=] { std::memset(data, value, bytes); });
}
CUDA_FAKE cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                          cudaStream_t stream) {
  return later(stream, [=] { std::memcpy(to, from, bytes); });
}
CUDA_FAKE cudaEventCreate(cudaEvent_t* event) {
  return ++state.events, *event = reinterpret_cast<cudaEvent_t>(new FakeEvent), cudaSuccess;
}
CUDA_FAKE cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }  // its queue may still contain it
CUDA_FAKE cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto* const recorded = reinterpret_cast<FakeEvent*>(event);
  const std::lock_guard lock(mutex);
  ++recorded->pending;
  recorded->stream = &fake(stream);
  return later(stream, [=] {
    --recorded->pending;
    recorded->us = clock_us;
  });
}
CUDA_FAKE cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(mutex);
  const auto* const asked = reinterpret_cast<FakeEvent*>(event);
  if (lost()) return cudaErrorIllegalAddress;
  if (asked->pending > 0) advance(*asked->stream);
  return asked->pending == 0 ? cudaSuccess : cudaErrorNotReady;
}
CUDA_FAKE cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const auto *from = reinterpret_cast<FakeEvent*>(begin), *to = reinterpret_cast<FakeEvent*>(end);
  if (from->pending != 0 || to->pending != 0) return cudaErrorNotReady;
  return *milliseconds = static_cast<float>((to->us - from->us) / 1e3), cudaSuccess;
}
#define NCCL_FAKE extern "C" __attribute__((visibility("default"))) ncclResult_t
NCCL_FAKE ncclGetVersion(int* version) { return *version = 22809, ncclSuccess; }
extern "C" const char* ncclGetErrorString(ncclResult_t) { return "a fake error"; }
extern "C" const char* ncclGetLastError(ncclComm_t) { return ""; }
NCCL_FAKE ncclGetUniqueId(ncclUniqueId*) { return ncclSuccess; }
NCCL_FAKE ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t*) {
  return *comm = reinterpret_cast<ncclComm_t>(&first), ncclInProgress;
}
NCCL_FAKE ncclCommInitRank(ncclComm_t* comm, int, ncclUniqueId, int) {
  return *comm = reinterpret_cast<ncclComm_t>(&first), ncclSuccess;
}
NCCL_FAKE ncclMemAlloc(void** data, size_t bytes) {
  return ++state.nccl_allocations, *data = std::malloc(bytes), ncclSuccess;
}
NCCL_FAKE ncclCommGetAsyncError(ncclComm_t, ncclResult_t* result) {
  const std::lock_guard lock(mutex);
  const bool failed = state.fails && operations > state.hangs_at;
  const bool busy = splitting > 0;
  if (busy && --splitting == 0 && !state.cannot_split) {
    *handed_out = reinterpret_cast<ncclComm_t>(&twin);
  }
  *result = failed ? ncclRemoteError : busy ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}
NCCL_FAKE ncclCommSplit(ncclComm_t, int, int, ncclComm_t* made, ncclConfig_t*) {
  splitting = 3;
  handed_out = made;
  return ncclSuccess;  // and goes on, as the real one does
}
#if !defined(WITHOUT_WINDOWS)
NCCL_FAKE ncclCommWindowRegister(ncclComm_t, void* data, size_t bytes, ncclWindow_t* window,
                                 int flags) {
  while (state.window_hangs) ::pause();
  if (flags != NCCL_WIN_COLL_SYMMETRIC) return ncclInvalidArgument;
  state.window_bytes = bytes;
  if (state.no_window) return *window = nullptr, ncclSuccess;
  ++state.windows_made;
  return *window = reinterpret_cast<ncclWindow_t>(data), ncclSuccess;
}
NCCL_FAKE ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  return --state.windows_made, ncclSuccess;
}
#endif
NCCL_FAKE ncclMemFree(void* data) {
  if (in_flight > 0) ++state.freed_in_use;
  return std::free(data), ncclSuccess;
}
NCCL_FAKE ncclCommFinalize(ncclComm_t) { return enter_nccl(), ncclSuccess; }
NCCL_FAKE ncclCommDestroy(ncclComm_t) { return enter_nccl(), ncclSuccess; }
NCCL_FAKE ncclCommAbort(ncclComm_t) {
  enter_nccl();
  ++state.aborts;
  return ++state.aborts_ended, ncclSuccess;
}
NCCL_FAKE ncclGroupStart() { return ++group_depth, ncclSuccess; }
NCCL_FAKE ncclGroupEnd() { return --group_depth, ncclSuccess; }
NCCL_FAKE ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t, ncclRedOp_t,
                        ncclComm_t, cudaStream_t stream) {
  return operate(from, to, 4 * count, stream);
}
// No test runs these.
#define REFUSED(name, ...) \
  NCCL_FAKE name(__VA_ARGS__) { return ncclInvalidArgument; }
REFUSED(ncclAllGather, const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)
REFUSED(ncclReduceScatter, const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
        cudaStream_t)
REFUSED(ncclBroadcast, const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
REFUSED(ncclReduce, const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
        cudaStream_t)
REFUSED(ncclSend, const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
REFUSED(ncclRecv, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
