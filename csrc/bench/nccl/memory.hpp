// The memory that a rank's collectives work on: one allocation to send from, one to receive into.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "bench/nccl/communicator.hpp"

namespace oddrank::nccl {

// Allocated by ncclMemAlloc where the library has it (what registration needs), else by cudaMalloc;
// zeroed. Keeps the communicator. The peak is what was asked for, rounded up to the granularity of
// such memory (2 MiB each). Not thread-safe.
class Memory {
 public:
  // registered: with the communicator, for zero-copy; Error where the library has no registration.
  // All ranks must ask for the same. A size may be 0: no allocation.
  Memory(std::shared_ptr<Communicator> communicator, std::size_t send_bytes, std::size_t recv_bytes,
         bool registered, Deadline deadline);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { free(); }

  char* send() const noexcept { return send_.data; }
  char* recv() const noexcept { return recv_.data; }
  std::size_t send_bytes() const noexcept { return send_.bytes; }
  std::size_t recv_bytes() const noexcept { return recv_.bytes; }
  // "ncclMemAlloc" or "cudaMalloc".
  const char* allocator() const noexcept { return by_nccl_ ? "ncclMemAlloc" : "cudaMalloc"; }
  bool registered() const noexcept { return registered_; }

  // No work may be on it any more: NCCL's way of freeing does not wait for it.
  void free() noexcept;
  // Forgets the memory: for work that does not end.
  void abandon() noexcept { send_ = recv_ = {}; }

 private:
  struct Part {
    char* data = nullptr;
    std::size_t bytes = 0;
    void* handle = nullptr;  // of the registration; NCCL gives null where it sees no use in one
  };
  Part allocate(std::size_t bytes);
  void free(Part& part) noexcept;

  std::shared_ptr<Communicator> communicator_;
  bool by_nccl_ = false;
  bool registered_ = false;
  Part send_, recv_;
};

}  // namespace oddrank::nccl
