// The yardstick of nccl_launch_cost.py: NCCL called in a bare loop, as its documentation shows it.
// Built by that script; no part of oddrank. One rank, a blocking communicator, cudaMalloc.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstddef>

namespace {
decltype(&ncclAllReduce) all_reduce;
decltype(&ncclSend) send;
decltype(&ncclRecv) receive;
decltype(&ncclGroupStart) group_start;
decltype(&ncclGroupEnd) group_end;

ncclComm_t comm;
cudaStream_t stream;
cudaEvent_t begin, end;
float *from, *to;
constexpr std::size_t kCount = 2;

template <class F>
bool find(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

bool run(bool grouped) {
  if (!grouped)
    return all_reduce(from, to, kCount, ncclFloat, ncclSum, comm, stream) == ncclSuccess;
  return group_start() == ncclSuccess &&
         send(from, kCount, ncclFloat, 0, comm, stream) == ncclSuccess &&
         receive(to, kCount, ncclFloat, 0, comm, stream) == ncclSuccess &&
         group_end() == ncclSuccess;
}
}  // namespace

// 0, or the number of the step that failed.
extern "C" int raw_open(const char* library_path) {
  decltype(&ncclCommInitRank) init = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  void* library = dlopen(library_path, RTLD_NOW);
  if (library == nullptr || !find(library, init, "ncclCommInitRank") ||
      !find(library, unique_id, "ncclGetUniqueId") || !find(library, all_reduce, "ncclAllReduce") ||
      !find(library, send, "ncclSend") || !find(library, receive, "ncclRecv") ||
      !find(library, group_start, "ncclGroupStart") || !find(library, group_end, "ncclGroupEnd")) {
    return 1;
  }
  ncclUniqueId id;
  if (cudaSetDevice(0) != cudaSuccess || unique_id(&id) != ncclSuccess ||
      init(&comm, 1, id, 0) != ncclSuccess) {
    return 2;
  }
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
      cudaEventCreate(&begin) != cudaSuccess || cudaEventCreate(&end) != cudaSuccess ||
      cudaMalloc(&from, kCount * sizeof *from) != cudaSuccess ||
      cudaMalloc(&to, kCount * sizeof *to) != cudaSuccess) {
    return 3;
  }
  return 0;
}

// Microseconds a run, between two events; negative: something failed.
extern "C" double raw_loop(int n, int grouped) {
  if (!run(grouped != 0)) return -1;
  cudaEventRecord(begin, stream);
  for (int i = 0; i < n; ++i) {
    if (!run(grouped != 0)) return -1;
  }
  cudaEventRecord(end, stream);
  if (cudaStreamSynchronize(stream) != cudaSuccess) return -2;
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, begin, end) != cudaSuccess) return -3;
  return static_cast<double>(milliseconds) * 1e3 / n;
}
