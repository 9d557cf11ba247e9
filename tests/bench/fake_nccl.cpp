// A fake NCCL without a GPU: its communicators never become ready, as if a rank were missing. With
// FAKE_NCCL_READY they do, and can be split into a twin: the split returns success, goes on for
// some queries, and only then hands out the twin. With FAKE_NCCL_ENDS_LATE the twin works for some
// time after it is finalized. FAKE_NCCL_DESTROY_HANGS names the one whose destruction never
// returns. The test compiles it.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
constexpr int kInProgress = 7;
struct UniqueId {
  char bytes[128];
};
int first, twin;
void** handed_out = nullptr;
int splitting = 0;  // queries until the twin is handed out
int left = 0;       // queries until the twin has ended
std::atomic<int> aborts = 0;

bool asked(const char* name) { return std::getenv(name) != nullptr; }

const char* name_of(const void* comm) {
  return comm == &first ? "first" : comm == &twin ? "twin" : "unknown";
}

void say(const char* what, const void* comm) {
  std::printf("%s %s\n", what, name_of(comm));
  std::fflush(stdout);
}
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
  *comm = &first;
  return kInProgress;
}
EXPORT int ncclCommGetAsyncError(void* comm, int* state) {
  if (comm == &twin && left > 0) {
    if (--left == 0) say("ended", comm);
    *state = kInProgress;
    return 0;
  }
  const bool ready = asked("FAKE_NCCL_READY") && splitting == 0;
  if (splitting > 0 && !asked("FAKE_NCCL_SPLIT_HANGS") && --splitting == 0) *handed_out = &twin;
  *state = ready ? 0 : kInProgress;
  return 0;
}
#if !defined(WITHOUT_SPLIT)
EXPORT int ncclCommSplit(void*, int, int, void** made, void*) {
  splitting = 3;
  handed_out = made;
  return 0;
}
#endif
EXPORT int ncclCommFinalize(void* comm) {
  say("finalized", comm);
  if (comm == &twin && asked("FAKE_NCCL_FINALIZE_HANGS")) ::pause();
  if (comm != &twin || !asked("FAKE_NCCL_ENDS_LATE")) return 0;
  left = 3;
  return kInProgress;
}
EXPORT int ncclCommDestroy(void* comm) {
  say("destroyed", comm);
  const char* hangs = std::getenv("FAKE_NCCL_DESTROY_HANGS");
  if (hangs != nullptr && std::strcmp(hangs, name_of(comm)) == 0) ::pause();
  return 0;
}
#if !defined(WITHOUT_ABORT)
EXPORT int ncclCommAbort(void* comm) {
  say("aborted", comm);
  ++aborts;
  if (asked("FAKE_NCCL_ABORT_HANGS")) ::pause();
  return 0;
}
#endif

// For Python: an abort runs in a thread of its own.
EXPORT int fake_nccl_aborts() { return aborts; }

#define DOES_NOTHING(name) \
  EXPORT int nccl##name() { return 0; }
DOES_NOTHING(AllReduce)
DOES_NOTHING(AllGather)
DOES_NOTHING(ReduceScatter)
DOES_NOTHING(Broadcast)
DOES_NOTHING(Reduce)
DOES_NOTHING(Send)
DOES_NOTHING(Recv)
DOES_NOTHING(GroupStart)
DOES_NOTHING(GroupEnd)
