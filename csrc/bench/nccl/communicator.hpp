// An NCCL communicator whose making and ending have deadlines.
#pragma once

#include <array>

#include "base/clock.hpp"
#include "bench/nccl/api.hpp"

namespace oddrank::nccl {

using UniqueId = std::array<char, NCCL_UNIQUE_ID_BYTES>;

// Made by one rank and handed to the others. Opens a listening socket in this process; needs no
// GPU.
UniqueId make_unique_id();

// Owns one non-blocking communicator on one GPU. Does not own the GPU's context. Not thread-safe.
class Communicator {
 public:
  // All `world` ranks must do this. Where they don't come, or NCCL can't reach them, the half-made
  // communicator is aborted at the deadline and Error says so. `device` < 0: this thread's current
  // device.
  Communicator(const UniqueId& id, int rank, int world, int device, Deadline deadline);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { abort(); }

  ncclComm_t get() const noexcept { return comm_; }
  int rank() const noexcept { return rank_; }
  int world() const noexcept { return world_; }

  // Ends it in agreement with the others; aborts it at the deadline and throws.
  void close(Deadline deadline);
  // Ends it without the others. NCCL may itself be stuck: after 2 s it is left to a thread of its
  // own.
  void abort() noexcept;
  // Throws what went wrong asynchronously; returns false while NCCL is still at work.
  bool ready(const char* call) const;

 private:
  void wait_until_ready(const char* call, Deadline deadline);

  const Api& api_;
  ncclComm_t comm_ = nullptr;
  int rank_;
  int world_;
};

}  // namespace oddrank::nccl
