// The NCCL library of this process: found (oddrank/_native.py) and loaded at run time, never
// linked, so that one build works without NCCL and joins the copy that torch has loaded. Types come
// from nccl.h; the functions only through the table below.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

namespace oddrank::nccl {

// clang-format off
// Since 2.14.3: a library without one of them is refused.
#define ODDRANK_NCCL_REQUIRED(X) \
  X(GetVersion) X(GetErrorString) X(GetLastError) X(GetUniqueId) X(CommInitRankConfig) \
  X(CommGetAsyncError) X(CommFinalize) X(CommDestroy) X(CommAbort) \
  X(AllReduce) X(AllGather) X(ReduceScatter) X(Broadcast) X(Reduce) X(Send) X(Recv) \
  X(GroupStart) X(GroupEnd)
// clang-format on

// Newer: null where the library lacks it. Needs no more than the oldest nccl.h we build with
// (2.19).
#define ODDRANK_NCCL_OPTIONAL(X) \
  X(CommSplit) X(MemAlloc) X(MemFree) X(CommRegister) X(CommDeregister)

// Newer than the oldest nccl.h (2.27, 2.28): their types are ours. Null where the library lacks
// them.
using AlltoAllFunction = ncclResult_t (*)(const void*, void*, std::size_t, ncclDataType_t,
                                          ncclComm_t, cudaStream_t);
using RootedFunction = ncclResult_t (*)(const void*, void*, std::size_t, ncclDataType_t, int,
                                        ncclComm_t, cudaStream_t);
using WindowRegisterFunction = ncclResult_t (*)(ncclComm_t, void*, std::size_t, void** window,
                                                int flags);
using WindowDeregisterFunction = ncclResult_t (*)(ncclComm_t, void* window);
// clang-format off
#define ODDRANK_NCCL_NEWER(X) \
  X(AlltoAll, AlltoAllFunction) X(Gather, RootedFunction) X(Scatter, RootedFunction) \
  X(CommWindowRegister, WindowRegisterFunction) X(CommWindowDeregister, WindowDeregisterFunction)
// clang-format on

// api.AllReduce(...) is ncclAllReduce(...) of the loaded library.
struct Api {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a member's name can't stand in parentheses.
#define ODDRANK_NCCL_MEMBER(name) decltype(&::nccl##name) name = nullptr;
  ODDRANK_NCCL_REQUIRED(ODDRANK_NCCL_MEMBER)
  ODDRANK_NCCL_OPTIONAL(ODDRANK_NCCL_MEMBER)
#undef ODDRANK_NCCL_MEMBER
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define ODDRANK_NCCL_MEMBER(name, type) type name = nullptr;
  ODDRANK_NCCL_NEWER(ODDRANK_NCCL_MEMBER)
#undef ODDRANK_NCCL_MEMBER

  std::string path;                  // the file that answers, symbolic links resolved
  int version = 0;                   // 22809 = 2.28.9, asked of the library
  std::vector<std::string> missing;  // optional functions that it lacks
};

// Loads NCCL once per process; later calls return the same table. `source`: how the file was found,
// for messages.
const Api& load(const std::string& file, const std::string& source);
// The table, or Error if load() has not succeeded yet.
const Api& loaded();

// "2.28.9" of 22809.
std::string version_text(int version);

// Throws Error with call, code, NCCL's text and last message, device and rank. ncclInProgress is
// not an error.
void check(ncclResult_t result, const char* call, ncclComm_t comm = nullptr);

}  // namespace oddrank::nccl
