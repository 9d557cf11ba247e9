// The table of collectives, dtypes and operators; from a request to NCCL's arguments.
#include "bench/nccl/plan.hpp"

#include <algorithm>
#include <numeric>

#include "os/error.hpp"

namespace oddrank::nccl {
namespace {

// As ROOT of bench/collectives.py.
constexpr int kRoot = 0;

constexpr int kOldestWithFloat8 = 22403;  // 2.24.3
// oneRankReduce() cuts the elements into segments by a division that rounds down: some at the end
// may be in none of them.
constexpr int kOldestShortAverage = 21900, kOldestWholeAverage = 22907;

struct Dtype {
  std::string_view name;
  std::size_t size;
  ncclDataType_t type;
  bool is_float, is_float8;
};
constexpr Dtype kDtypes[] = {
    {"float32", 4, ncclFloat32, true, false},
    {"float16", 2, ncclFloat16, true, false},
    {"bfloat16", 2, ncclBfloat16, true, false},
    {"float64", 8, ncclFloat64, true, false},
    {"int8", 1, ncclInt8, false, false},
    {"int32", 4, ncclInt32, false, false},
    {"int64", 8, ncclInt64, false, false},
    {"uint8", 1, ncclUint8, false, false},
    {"uint32", 4, ncclUint32, false, false},
    {"uint64", 8, ncclUint64, false, false},
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    {"float8_e4m3fn", 1, ncclFloat8e4m3, true, true},
    {"float8_e5m2", 1, ncclFloat8e5m2, true, true},
#endif
};

struct Operator {
  std::string_view name;
  ncclRedOp_t op;
};
constexpr Operator kOperators[] = {
    {"sum", ncclSum}, {"min", ncclMin}, {"max", ncclMax}, {"avg", ncclAvg}, {"prod", ncclProd}};

// The number of elements on one side of a collective.
enum class Share { kAll, kPart, kGiven };

using Builder = void (*)(const Request&, const Plan&, std::size_t part, std::vector<Call>&);

struct Row {
  std::string_view name;
  Function function;  // kSend: none, always a group
  bool reduces;
  bool in_place;  // NCCL defines it
  bool rooted;
  bool by_part;  // NCCL's count is one rank's part
  Share send, recv;
  Builder grouped;  // where the library lacks the function
};

void gather(const Request& r, const Plan& plan, std::size_t part, std::vector<Call>& calls) {
  calls.push_back({Function::kSend, plan.send_at, 0, part, kRoot});
  if (r.rank != kRoot) return;
  for (int from = 0; from < r.world; ++from) {
    calls.push_back({Function::kRecv, 0, static_cast<std::size_t>(from) * part, part, from});
  }
}

void scatter(const Request& r, const Plan& plan, std::size_t part, std::vector<Call>& calls) {
  for (int to = 0; r.rank == kRoot && to < r.world; ++to) {
    calls.push_back({Function::kSend, static_cast<std::size_t>(to) * part, 0, part, to});
  }
  calls.push_back({Function::kRecv, 0, plan.recv_at, part, kRoot});
}

void all_to_all(const Request& r, const Plan&, std::size_t part, std::vector<Call>& calls) {
  for (int peer = 0; peer < r.world; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * part;
    calls.push_back({Function::kSend, at, 0, part, peer});
    calls.push_back({Function::kRecv, 0, at, part, peer});
  }
}

void all_to_all_v(const Request& r, const Plan&, std::size_t, std::vector<Call>& calls) {
  std::size_t send_at = 0, recv_at = 0;
  for (std::size_t i = 0; i < r.send_counts.size(); ++i) {
    const int peer = static_cast<int>(i);
    if (r.send_counts[i] > 0) {
      calls.push_back({Function::kSend, send_at, 0, r.send_counts[i], peer});
    }
    if (r.recv_counts[i] > 0) {
      calls.push_back({Function::kRecv, 0, recv_at, r.recv_counts[i], peer});
    }
    send_at += r.send_counts[i];
    recv_at += r.recv_counts[i];
  }
}

void ring(const Request& r, const Plan& plan, std::size_t, std::vector<Call>& calls) {
  calls.push_back({Function::kSend, 0, 0, plan.send_count, (r.rank + 1) % r.world});
  calls.push_back({Function::kRecv, 0, 0, plan.recv_count, (r.rank + r.world - 1) % r.world});
}

constexpr bool kYes = true, kNo = false;
constexpr Share kAll = Share::kAll, kPart = Share::kPart, kGiven = Share::kGiven;
// clang-format off
constexpr Row kRows[] = {
  //                                         reduces in place rooted by part  send    recv
  {"all_reduce",     Function::kAllReduce,     kYes, kYes, kNo,  kNo,  kAll,   kAll,   nullptr},
  {"all_gather",     Function::kAllGather,     kNo,  kYes, kNo,  kYes, kPart,  kAll,   nullptr},
  {"reduce_scatter", Function::kReduceScatter, kYes, kYes, kNo,  kYes, kAll,   kPart,  nullptr},
  {"broadcast",      Function::kBroadcast,     kNo,  kYes, kYes, kNo,  kAll,   kAll,   nullptr},
  {"reduce",         Function::kReduce,        kYes, kYes, kYes, kNo,  kAll,   kAll,   nullptr},
  {"gather",         Function::kGather,        kNo,  kYes, kYes, kYes, kPart,  kAll,   gather},
  {"scatter",        Function::kScatter,       kNo,  kYes, kYes, kYes, kAll,   kPart,  scatter},
  {"all_to_all",     Function::kAlltoAll,      kNo,  kNo,  kNo,  kYes, kAll,   kAll,   all_to_all},
  {"all_to_all_v",   Function::kSend,          kNo,  kNo,  kNo,  kNo,  kGiven, kGiven, all_to_all_v},
  {"sendrecv",       Function::kSend,          kNo,  kNo,  kNo,  kNo,  kAll,   kAll,   ring},
  // One element reduced: NCCL has no barrier of its own.
  {"barrier",        Function::kAllReduce,     kYes, kYes, kNo,  kNo,  kAll,   kAll,   nullptr},
};
// clang-format on

constexpr const char* kNames[] = {
    "ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclReduce",
    "ncclGather",    "ncclScatter",   "ncclAlltoAll",      "ncclSend",      "ncclRecv"};

template <class Rows>
const auto* find(const Rows& rows, std::string_view name) {
  const auto* found = std::find_if(std::begin(rows), std::end(rows),
                                   [&](const auto& row) { return row.name == name; });
  return found == std::end(rows) ? nullptr : found;
}

bool is_barrier(const Row& row) { return row.name == "barrier"; }

bool has(const Abilities& able, Function function) {
  if (function == Function::kAlltoAll) return able.all_to_all;
  if (function == Function::kGather) return able.gather;
  if (function == Function::kScatter) return able.scatter;
  return function != Function::kSend;
}

std::string refuse_float8(const Request& r, const Row& row, const Abilities& able) {
  if (able.version < kOldestWithFloat8) {
    return "NCCL " + version_text(able.version) + " has no " + r.dtype + ", 2.24 has";
  }
  if (row.reduces && able.compute_capability != 0 && able.compute_capability < 90) {
    return "NCCL reduces " + r.dtype + " on GPUs of compute capability 9.0 and newer only";
  }
  // ncclLaunchOneRank() leaves its fp8 cases to device code: invalid argument, up to 2.30.
  if (row.reduces && r.op == "avg" && r.world == 1) {
    return "NCCL has no avg of " + r.dtype + " on one rank";
  }
  return {};
}

std::string refuse_average(const Request& r, const Dtype& dtype, const Abilities& able) {
  if (r.world > 1 || r.in_place || !dtype.is_float) return {};
  if (able.version < kOldestShortAverage || able.version >= kOldestWholeAverage) return {};
  return "NCCL " + version_text(able.version) + " leaves out elements of an avg of " + r.dtype +
         " on one rank, " + version_text(kOldestWholeAverage) + " does not";
}

std::size_t sum(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

// Returns whether the sum is at most `most`. The sum itself may overflow.
bool fit(const std::vector<std::size_t>& counts, std::size_t most) {
  return std::all_of(counts.begin(), counts.end(), [&](std::size_t count) {
    const bool fits = count <= most;
    most -= fits ? count : 0;
    return fits;
  });
}

// Returns the elements in the window of one side.
std::size_t extent(Share share, std::size_t count, std::size_t part,
                   const std::vector<std::size_t>& given) {
  return share == kAll ? count : share == kPart ? part : sum(given);
}

void require(bool holds, const Request& r, const std::string& why) {
  if (!holds) {
    throw Error(r.collective + " of " + std::to_string(r.bytes) + " bytes on " +
                std::to_string(r.world) + " ranks: " + why);
  }
}

}  // namespace

Abilities abilities(const Api& api, int compute_capability) {
  return {api.version, api.AlltoAll != nullptr, api.Gather != nullptr, api.Scatter != nullptr,
          compute_capability};
}

std::vector<std::string> collectives() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

std::string refusal(const Request& r, const Abilities& able) {
  const Row* row = find(kRows, r.collective);
  if (row == nullptr) return "NCCL has no collective " + r.collective;
  if (is_barrier(*row)) return {};
  const Dtype* dtype = find(kDtypes, r.dtype);
  if (dtype == nullptr) {
    if (r.dtype.rfind("float8", 0) == 0) {
      return "this oddrank was built with an nccl.h older than 2.24, which has no " + r.dtype;
    }
    return "NCCL has no dtype " + r.dtype;
  }
  if (row->reduces && find(kOperators, r.op) == nullptr) return "NCCL has no operation " + r.op;
  if (r.in_place && !row->in_place) return "NCCL has no " + r.collective + " in place";
  if (dtype->is_float8) return refuse_float8(r, *row, able);
  return row->reduces && r.op == "avg" ? refuse_average(r, *dtype, able) : std::string();
}

Plan plan(const Request& r, const Abilities& able) {
  if (const std::string why = refusal(r, able); !why.empty()) throw Error(why);
  const Row& row = *find(kRows, r.collective);
  require(r.world > 0 && r.rank >= 0 && r.rank < r.world, r, "there is no such rank");
  const auto ranks = static_cast<std::size_t>(r.world);
  Plan plan;
  std::size_t count = 1;
  if (is_barrier(row)) {
    plan.type = ncclInt32;
    plan.element = 4;
  } else {
    const Dtype& dtype = *find(kDtypes, r.dtype);
    plan.type = dtype.type;
    plan.element = dtype.size;
    if (row.reduces) plan.op = find(kOperators, r.op)->op;
    require(r.bytes > 0 && r.bytes % dtype.size == 0, r, "no whole number of elements");
    count = r.bytes / dtype.size;
  }
  require(!row.by_part || count % ranks == 0, r, "the ranks can't share it evenly");
  const std::size_t part = row.by_part ? count / ranks : count;
  if (row.send == kGiven) {
    require(r.send_counts.size() == ranks && r.recv_counts.size() == ranks, r,
            "it needs a count for every rank");
    require(fit(r.send_counts, count) && fit(r.recv_counts, count), r,
            "the counts of the ranks are more than that");
  }
  plan.send_count = extent(row.send, count, part, r.send_counts);
  plan.recv_count = extent(row.recv, count, part, r.recv_counts);
  if (r.in_place && row.send == kPart) plan.send_at = static_cast<std::size_t>(r.rank) * part;
  if (r.in_place && row.recv == kPart) plan.recv_at = static_cast<std::size_t>(r.rank) * part;

  if (has(able, row.function)) {
    plan.calls = {{row.function, plan.send_at, plan.recv_at, part, row.rooted ? kRoot : -1}};
    plan.issued = kNames[static_cast<int>(row.function)];
  } else {
    row.grouped(r, plan, part, plan.calls);
    plan.issued = "grouped ncclSend and ncclRecv";
  }
  return plan;
}

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
  // The group is always ended: an open one would swallow all later calls.
  ncclResult_t first = api.GroupStart();
  for (const Call& call : plan.calls) {
    const ncclResult_t result = issue_one(api, plan, call, send, recv, comm, stream);
    if (first == ncclSuccess || first == ncclInProgress) first = result;
  }
  const ncclResult_t ended = api.GroupEnd();
  return first == ncclSuccess || first == ncclInProgress ? ended : first;
}

}  // namespace oddrank::nccl
