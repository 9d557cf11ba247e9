// The collectives as NCCL calls: the plan of a case on one rank, and the calls themselves.
#pragma once

#include <string_view>

#include "bench/nccl/api.hpp"

namespace oddrank::nccl {

// Every function that a run may call.
enum class Function {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAlltoAll,
  kSend,
  kRecv,
};

// A collective on one rank, in torch's names. `bytes`: the size as nccl-tests counts it (of one
// rank's buffer, or of all ranks' together: doc/PERFORMANCE.md), a multiple of what the ranks
// share.
struct Request {
  std::string collective;
  std::string dtype;
  std::string op = "none";  // sum min max avg prod; ignored where nothing is reduced
  std::size_t bytes = 0;
  int rank = 0;
  int world = 1;
  bool in_place = false;
  // Elements to and from every rank, for all_to_all_v alone.
  std::vector<std::size_t> send_counts, recv_counts;
};

// One call. Offsets are in elements: of the send window and of the receive window, which in place
// are one. peer: the root or the other side, else -1.
struct Call {
  Function function;
  std::size_t send_at;
  std::size_t recv_at;
  std::size_t count;
  int peer;
};

// The calls of one run; several calls are one group. Windows and offsets are equal on all ranks
// where NCCL's semantics allow it, for registered buffers need that.
struct Plan {
  std::vector<Call> calls;
  std::string issued;  // "ncclAllReduce", "grouped ncclSend and ncclRecv": for messages
  std::size_t send_count = 0, recv_count = 0;  // elements of the windows
  std::size_t send_at = 0, recv_at = 0;        // where in its window this rank's own part begins
  std::size_t element = 1;                     // bytes
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
};

// The abilities of the loaded library that a plan depends on.
struct Abilities {
  int version = NCCL_VERSION_CODE;
  bool all_to_all = false, gather = false, scatter = false;  // ncclAlltoAll and kin
  int compute_capability = 0;                                // 90 = 9.0; 0: not known
};
Abilities abilities(const Api& api, int compute_capability);

// Returns why NCCL cannot run it, as a sentence without its period; empty if it can. Pure. Ignores
// sizes.
std::string refusal(const Request& request, const Abilities& able);
// Pure. Throws Error with the refusal, or if the ranks cannot share the size or it overflows.
Plan plan(const Request& request, const Abilities& able);
// Returns the table's names.
std::vector<std::string> collectives();

// Issues one run on `stream`; hot. The pointers are the windows' begins.
ncclResult_t issue(const Api& api, const Plan& plan, const char* send, char* recv, ncclComm_t comm,
                   cudaStream_t stream) noexcept;

}  // namespace oddrank::nccl
