// An NCCL communicator that is created and closed with deadlines, and the memory of its
// collectives.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>

#include "bench/nccl/api.hpp"
#include "os/clock.hpp"

namespace oddrank::nccl {

// Runs `call` in its own thread, on `device` (-1: none is selected). A thread begins on GPU 0, and
// NCCL would make a context there. Returns whether the call ended in time, and rethrows its
// exception. A call that did not end goes on alone, so it must own (share) all that it touches.
// Throws Error if no thread can be started; `call` has not run then.
bool finished_by(Deadline deadline, int device, std::function<void()> call);

using UniqueId = std::array<char, NCCL_UNIQUE_ID_BYTES>;

// Made by one rank and sent to the others. Opens a listening socket in this process; needs no GPU.
UniqueId make_unique_id();

// Returns why this environment allows no communicator, as a sentence without its period; empty if
// it does. NCCL lets NCCL_COMM_BLOCKING overrule the configuration of a communicator. We don't
// unset it: torch shares the library, which reads the variable once, and other threads may be
// reading it.
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
  // Returns CUDA's number of the device, -1 if there is none.
  int device() const noexcept { return device_; }
  // Whether operations are launched by the thread that calls NCCL.
  bool direct() const noexcept { return direct_; }

  // Ends it in agreement with the others; aborts it at the deadline and throws.
  void close(Deadline deadline);
  // Ends it without the others. NCCL itself may be stuck: after 2 s the call goes on in its own
  // thread. Not while another thread is inside a call of NCCL: use abandon() then.
  void abort() noexcept;
  // Forgets it as it is.
  void abandon() noexcept { comm_ = nullptr; }

  // Throws NCCL's asynchronous error. Returns false while NCCL is still at work.
  bool ready(const char* call) const;
  // Ends every operation: throws if `result` is an error, and waits until the operation is on its
  // stream. Hot.
  void issued(ncclResult_t result, const char* call, Deadline deadline) {
    if (result == ncclSuccess && direct_) return;
    settle(result, call, deadline);
  }

 private:
  void wait_until_ready(ncclComm_t comm, const char* call, Deadline deadline);
  void settle(ncclResult_t result, const char* call, Deadline deadline);
  void make_direct(Deadline deadline);
  void destroy(ncclComm_t comm, Deadline deadline) const;

  const Api& api_;
  std::atomic<ncclComm_t> comm_ = nullptr;  // a thread left behind may still ask for it
  int rank_;
  int world_;
  int device_ = -1;
  bool direct_ = false;
};

// How memory is made known to NCCL. buffer: ncclCommRegister, for zero-copy. window: symmetric, by
// ncclCommWindowRegister, for kernels that address all ranks' memory directly.
enum class Registration { kNone, kBuffer, kWindow };

// "", "buffer" or "window"; Error for another name.
Registration registration_of(const std::string& name);

// Allocated by ncclMemAlloc where the library has it (registration needs it), else by cudaMalloc;
// zeroed. Keeps the communicator. The peak is the requested size, rounded up to the granularity of
// such memory (2 MiB). Not thread-safe.
class Memory {
 public:
  // Error where the library lacks that registration, or makes no window of this memory. All ranks
  // must ask for the same, and equally many bytes: a window is made by all together.
  Memory(std::shared_ptr<Communicator> communicator, std::size_t bytes, Registration registration,
         Deadline deadline);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { free(); }

  // Null once it was freed.
  char* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // "ncclMemAlloc" or "cudaMalloc".
  const char* allocator() const noexcept { return by_nccl_ ? "ncclMemAlloc" : "cudaMalloc"; }
  bool registered() const noexcept { return registration_ != Registration::kNone; }

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
  void make_known(Deadline deadline);
  void make_window(Deadline deadline);

  std::shared_ptr<Communicator> communicator_;
  bool by_nccl_ = false;
  Registration registration_;
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
  void* handle_ = nullptr;  // the registration's; null if NCCL sees no use in one
};

}  // namespace oddrank::nccl
