// Makes, polls, ends and aborts communicators.
#include "bench/nccl/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "cuda/buffer.hpp"

namespace oddrank::nccl {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);
constexpr auto kAbortPatience = std::chrono::seconds(2);

}  // namespace

UniqueId make_unique_id() {
  ncclUniqueId id{};
  check(loaded().GetUniqueId(&id), "ncclGetUniqueId");
  UniqueId bytes{};
  std::copy(std::begin(id.internal), std::end(id.internal), bytes.begin());
  return bytes;
}

Communicator::Communicator(const UniqueId& id, int rank, int world, int device, Deadline deadline)
    : api_(loaded()), rank_(rank), world_(world) {
  if (device >= 0) cuda::select_device(device);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId nccl_id{};
  std::copy(id.begin(), id.end(), std::begin(nccl_id.internal));
  try {
    check(api_.CommInitRankConfig(&comm_, world, nccl_id, rank, &config), "ncclCommInitRankConfig");
    wait_until_ready("ncclCommInitRankConfig", deadline);
  } catch (...) {
    abort();  // the destructor does not run
    throw;
  }
}

bool Communicator::ready(const char* call) const {
  ncclResult_t state = ncclSuccess;
  check(api_.CommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
  check(state, call, comm_);
  return state != ncclInProgress;
}

void Communicator::wait_until_ready(const char* call, Deadline deadline) {
  while (!ready(call)) {
    if (deadline.passed()) {
      abort();
      throw Error(std::string(call) + ": the " + std::to_string(world_) +
                  " ranks did not agree before the deadline (rank " + std::to_string(rank_) +
                  "). A rank is missing or NCCL can't reach it: check NCCL_SOCKET_IFNAME, run with "
                  "NCCL_DEBUG=INFO");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

void Communicator::close(Deadline deadline) {
  if (comm_ == nullptr) return;
  try {
    check(api_.CommFinalize(comm_), "ncclCommFinalize", comm_);
    wait_until_ready("ncclCommFinalize", deadline);
  } catch (...) {
    abort();
    throw;
  }
  check(api_.CommDestroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
}

void Communicator::abort() noexcept {
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) return;
  try {
    // A promise, not std::async: the future of async waits for its thread.
    std::promise<void> promise;
    const auto done = promise.get_future();
    std::thread([abort = api_.CommAbort, comm, promise = std::move(promise)]() mutable {
      abort(comm);
      promise.set_value();
    }).detach();
    done.wait_for(kAbortPatience);
  } catch (const std::exception&) {
    // No thread to be had: the communicator is left as it is rather than risk a hang.
    return;
  }
}

}  // namespace oddrank::nccl
