// An NCCL communicator whose making and ending have deadlines.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "base/clock.hpp"
#include "bench/nccl/api.hpp"

namespace oddrank::nccl {

using UniqueId = std::array<char, NCCL_UNIQUE_ID_BYTES>;

// Made by one rank and handed to the others. Opens a listening socket in this process; needs no
// GPU.
UniqueId make_unique_id();

// Why none can be made in this environment, as one sentence without its end; empty: nothing. NCCL
// lets NCCL_COMM_BLOCKING overrule what a communicator was asked to be. We don't unset it: torch
// shares the library, which reads the variable once, and other threads may be reading it.
std::string obstacle();

// Owns one communicator on one GPU. Does not own the GPU's context. Not thread-safe.
//
// It is made non-blocking, so that a rank that never comes costs a deadline and no more. But NCCL
// starts a thread for every operation of such a communicator (src/group.cc), which small messages
// would show as latency of the fabric. So the non-blocking one is split into a blocking twin, by
// the same deadline, and ended; where the library can't split, it stays and direct() is false.
class Communicator {
 public:
  // All `world` ranks must do this. Where they don't come, or NCCL can't reach them, the half-made
  // communicator is aborted at the deadline and Error says so. `device` < 0: this thread's current
  // device.
  Communicator(const UniqueId& id, int rank, int world, int device, Deadline deadline);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { abort(); }

  // Null once it is closed, aborted or abandoned.
  ncclComm_t get() const noexcept { return comm_.load(std::memory_order_relaxed); }
  const Api& api() const noexcept { return api_; }
  int rank() const noexcept { return rank_; }
  int world() const noexcept { return world_; }
  // Of CUDA; -1 where there is none.
  int device() const noexcept { return device_; }
  // Whether operations are launched by the thread that calls NCCL.
  bool direct() const noexcept { return direct_; }

  // Ends it in agreement with the others; aborts it at the deadline and throws. Graphs that hold
  // its operations must be gone: NCCL waits for them.
  void close(Deadline deadline);
  // Ends it without the others. NCCL may itself be stuck: after 2 s it is left to a thread of its
  // own. Not while another thread is inside a call of NCCL: that is what abandon() is for.
  void abort() noexcept;
  // Forgets it as it is.
  void abandon() noexcept { comm_ = nullptr; }

  // Throws what went wrong asynchronously; returns false while NCCL is still at work.
  bool ready(const char* call) const;
  // What every operation ends with: throws where `result` is an error, and sees to it that the
  // operation is on its stream. Hot.
  void issued(ncclResult_t result, const char* call, Deadline deadline) {
    if (result == ncclSuccess && direct_) return;
    settle(result, call, deadline);
  }

 private:
  void wait_until_ready(ncclComm_t comm, const char* call, Deadline deadline);
  void settle(ncclResult_t result, const char* call, Deadline deadline);
  void make_direct(Deadline deadline);

  const Api& api_;
  std::atomic<ncclComm_t> comm_ = nullptr;  // a thread left behind may still ask for it
  int rank_;
  int world_;
  int device_ = -1;
  bool direct_ = false;
};

}  // namespace oddrank::nccl
