// An open collective, ended by its Work. Includes torch's headers: for collectives.cpp only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "trace/write/collective_sink.hpp"

namespace oddrank::trace {

// Closes a ticket exactly once: by end(), issued() or, at the latest, its destructor.
class OpenCall {
 public:
  OpenCall(const CollectiveSink& sink, std::uint64_t ticket) noexcept
      : sink_(sink), ticket_(ticket) {}
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;
  ~OpenCall() { end(); }

  void numbered(std::uint64_t sequence) const noexcept { sink_.numbered(ticket_, sequence); }
  void end() noexcept {
    if (!closed_.exchange(true, std::memory_order_acq_rel)) sink_.end(ticket_);
  }
  void issued() noexcept {
    if (!closed_.exchange(true, std::memory_order_acq_rel)) sink_.issued(ticket_);
  }

 private:
  const CollectiveSink& sink_;
  const std::uint64_t ticket_;
  std::atomic<bool> closed_ = false;
};

// Puts our callback in front of the profiler's in a Work. torch calls it "when collective operation
// is complete": finish() and finishAndThrow() do, and the Works of gloo, MPI and UCC. Unlike an
// observer it costs the user's record_function() nothing, and unlike a future every Work has it.
// It runs on the thread that completes the Work, under the Work's lock, before any wait() returns;
// it needs no GIL and keeps only the ticket alive.
// gloo's send and recv complete only in wait(). A Work that never calls it (not waited for, or of
// another kind) ends the collective when its last owner releases it.
class WorkEnd : public c10d::Work {
 public:
  static void tell(c10d::Work& work, std::shared_ptr<OpenCall> call) {
    const std::lock_guard lock(work.*(&WorkEnd::mutex_));
    if (work.*(&WorkEnd::completed_)) return;  // destroys `call`, which ends it
    auto& callback = work.*(&WorkEnd::recordFunctionEndCallback_);
    callback = [call = std::move(call), profiler = std::move(callback)] {
      call->end();
      if (profiler) profiler();
    };
  }
};

}  // namespace oddrank::trace
