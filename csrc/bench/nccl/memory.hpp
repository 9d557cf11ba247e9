// The memory of a rank's collectives: one allocation, of which each uses its own part.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bench/nccl/communicator.hpp"
#include "os/clock.hpp"

namespace oddrank::nccl {

// Allocated by ncclMemAlloc where the library has it (what registration needs), else by cudaMalloc;
// zeroed. Keeps the communicator. The peak is what was asked for, rounded up to the granularity of
// such memory (2 MiB). Not thread-safe.
class Memory {
 public:
  // registered: with the communicator, for zero-copy; Error where the library has no registration.
  // All ranks must ask for the same.
  Memory(std::shared_ptr<Communicator> communicator, std::size_t bytes, bool registered,
         Deadline deadline);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { free(); }

  // Null once it was freed.
  char* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // "ncclMemAlloc" or "cudaMalloc".
  const char* allocator() const noexcept { return by_nccl_ ? "ncclMemAlloc" : "cudaMalloc"; }
  bool registered() const noexcept { return registered_; }

  // No work may use it any more: NCCL frees without waiting.
  void free() noexcept;
  // Forgets the memory, for work that does not end.
  void abandon() noexcept {
    data_ = nullptr;
    bytes_ = 0;
    handle_ = nullptr;
  }

 private:
  void allocate(std::size_t bytes);

  std::shared_ptr<Communicator> communicator_;
  bool by_nccl_ = false;
  bool registered_ = false;
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
  void* handle_ = nullptr;  // of the registration; null if NCCL sees no use in one
};

}  // namespace oddrank::nccl
