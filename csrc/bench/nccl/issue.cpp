// Gives one run of a plan to NCCL: the hot path of every figure.
#include "bench/nccl/collectives.hpp"

namespace oddrank::nccl {
namespace {

ncclResult_t issue_one(const Api& api, const Plan& plan, const Call& call, const char* send,
                       char* recv, ncclComm_t comm, cudaStream_t stream) noexcept {
  const char* from = send + call.send_at * plan.element;
  char* to = recv + call.recv_at * plan.element;
  switch (call.function) {
    case Function::kAllReduce:
      return api.AllReduce(from, to, call.count, plan.type, plan.op, comm, stream);
    case Function::kAllGather:
      return api.AllGather(from, to, call.count, plan.type, comm, stream);
    case Function::kReduceScatter:
      return api.ReduceScatter(from, to, call.count, plan.type, plan.op, comm, stream);
    case Function::kBroadcast:
      return api.Broadcast(from, to, call.count, plan.type, call.peer, comm, stream);
    case Function::kReduce:
      return api.Reduce(from, to, call.count, plan.type, plan.op, call.peer, comm, stream);
    case Function::kGather:
      return api.Gather(from, to, call.count, plan.type, call.peer, comm, stream);
    case Function::kScatter:
      return api.Scatter(from, to, call.count, plan.type, call.peer, comm, stream);
    case Function::kAlltoAll:
      return api.AlltoAll(from, to, call.count, plan.type, comm, stream);
    case Function::kSend:
      return api.Send(from, call.count, plan.type, call.peer, comm, stream);
    case Function::kRecv:
      return api.Recv(to, call.count, plan.type, call.peer, comm, stream);
  }
  return ncclInternalError;
}

}  // namespace

ncclResult_t issue(const Api& api, const Plan& plan, const char* send, char* recv, ncclComm_t comm,
                   cudaStream_t stream) noexcept {
  if (plan.calls.size() == 1) {
    return issue_one(api, plan, plan.calls.front(), send, recv, comm, stream);
  }
  // The group is ended whatever happens in it: an open one would swallow all later calls.
  ncclResult_t first = api.GroupStart();
  for (const Call& call : plan.calls) {
    const ncclResult_t result = issue_one(api, plan, call, send, recv, comm, stream);
    if (first == ncclSuccess || first == ncclInProgress) first = result;
  }
  const ncclResult_t ended = api.GroupEnd();
  return first == ncclSuccess || first == ncclInProgress ? ended : first;
}

}  // namespace oddrank::nccl
