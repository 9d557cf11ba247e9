// The yardstick of nccl_launch_cost.py, which builds it: NCCL in a bare loop, as in its
// documentation. One rank, a blocking communicator, and the same kind of memory and number of
// windows as oddrank's side: the driver makes the copy, which may depend on both.
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
char *sent, *received;
std::size_t stride, windows;
constexpr std::size_t kCount = 2;

template <class F>
bool find(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

bool allocate(decltype(&ncclMemAlloc) by_nccl, char*& data, std::size_t bytes) {
  void* made = nullptr;
  const bool done = by_nccl != nullptr ? by_nccl(&made, bytes) == ncclSuccess
                                       : cudaMalloc(&made, bytes) == cudaSuccess;
  data = static_cast<char*>(made);
  return done;
}

bool run(std::size_t turn, bool grouped) {
  const char* const from = sent + turn % windows * stride;
  char* const to = received + turn % windows * stride;
  if (!grouped)
    return all_reduce(from, to, kCount, ncclFloat, ncclSum, comm, stream) == ncclSuccess;
  return group_start() == ncclSuccess &&
         send(from, kCount, ncclFloat, 0, comm, stream) == ncclSuccess &&
         receive(to, kCount, ncclFloat, 0, comm, stream) == ncclSuccess &&
         group_end() == ncclSuccess;
}
}  // namespace

// Returns 0, or the number of the step that failed. by_nccl: memory of ncclMemAlloc, else of
// cudaMalloc. bytes: size of each half, to send from and to receive into; windows are `stride_`
// bytes apart.
extern "C" int raw_open(const char* library_path, int by_nccl, std::size_t bytes,
                        std::size_t stride_, std::size_t windows_) {
  decltype(&ncclCommInitRank) init = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclMemAlloc) mem_alloc = nullptr;
  void* library = dlopen(library_path, RTLD_NOW);
  if (library == nullptr || !find(library, init, "ncclCommInitRank") ||
      !find(library, unique_id, "ncclGetUniqueId") || !find(library, all_reduce, "ncclAllReduce") ||
      !find(library, send, "ncclSend") || !find(library, receive, "ncclRecv") ||
      !find(library, group_start, "ncclGroupStart") || !find(library, group_end, "ncclGroupEnd") ||
      (by_nccl != 0 && !find(library, mem_alloc, "ncclMemAlloc"))) {
    return 1;
  }
  stride = stride_;
  windows = windows_;
  ncclUniqueId id;
  if (cudaSetDevice(0) != cudaSuccess || unique_id(&id) != ncclSuccess ||
      init(&comm, 1, id, 0) != ncclSuccess) {
    return 2;
  }
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
      cudaEventCreate(&begin) != cudaSuccess || cudaEventCreate(&end) != cudaSuccess ||
      !allocate(mem_alloc, sent, 2 * bytes)) {
    return 3;
  }
  received = sent + bytes;
  return 0;
}

// Returns the microseconds of a run, between two events; negative: something failed.
extern "C" double raw_loop(int n, int grouped) {
  if (!run(0, grouped != 0)) return -1;
  cudaEventRecord(begin, stream);
  for (int i = 0; i < n; ++i) {
    if (!run(static_cast<std::size_t>(i), grouped != 0)) return -1;
  }
  cudaEventRecord(end, stream);
  if (cudaStreamSynchronize(stream) != cudaSuccess) return -2;
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, begin, end) != cudaSuccess) return -3;
  return static_cast<double>(milliseconds) * 1e3 / n;
}
