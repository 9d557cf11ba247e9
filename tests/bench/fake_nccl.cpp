// An NCCL whose communicators never become ready: what a missing rank looks like, without a GPU.
// Compiled by the test.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
constexpr int kInProgress = 7;
struct UniqueId {
  char bytes[128];
};
int communicator;
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int ncclGetVersion(int* version) {
  *version = 22304;
  return 0;
}
EXPORT const char* ncclGetErrorString(int) { return "a fake error"; }
EXPORT const char* ncclGetLastError(void*) { return ""; }
EXPORT int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return 0;
}
EXPORT int ncclCommInitRankConfig(void** comm, int, UniqueId, int, void*) {
  *comm = &communicator;
  return kInProgress;
}
EXPORT int ncclCommGetAsyncError(void*, int* state) {
  *state = kInProgress;
  return 0;
}
#if !defined(WITHOUT_ABORT)
EXPORT int ncclCommAbort(void* comm) {
  std::printf("aborted %d\n", comm == &communicator);
  std::fflush(stdout);
  if (std::getenv("FAKE_NCCL_ABORT_HANGS") != nullptr) ::pause();
  return 0;
}
#endif

#define DOES_NOTHING(name) \
  EXPORT int nccl##name() { return 0; }
DOES_NOTHING(CommFinalize)
DOES_NOTHING(CommDestroy)
DOES_NOTHING(CommCount)
DOES_NOTHING(CommUserRank)
DOES_NOTHING(AllReduce)
DOES_NOTHING(AllGather)
DOES_NOTHING(ReduceScatter)
DOES_NOTHING(Broadcast)
DOES_NOTHING(Reduce)
DOES_NOTHING(Send)
DOES_NOTHING(Recv)
DOES_NOTHING(GroupStart)
DOES_NOTHING(GroupEnd)
DOES_NOTHING(CommSplit)
