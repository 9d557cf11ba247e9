// One collective between its begin and its end, and who tells its end: the Work itself.
// Includes torch's headers: for collectives.cpp only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "trace/record/collective_sink.hpp"

namespace oddrank::trace {

// A ticket that is given back once, at the latest when the last who could do it is gone.
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

// Every Work has a callback for the profiler that "needs to be called when collective operation is
// complete": finish() and finishAndThrow() do, and gloo's, MPI's and UCC's Works through them or by
// hand. Ours goes there, so that there is neither an observer that every record_function() of the
// user's would pay for, nor a future (gloo's send and recv have none). It is called on the thread
// that completes the Work, under its lock and before any wait() returns; it needs no GIL and keeps
// nothing alive but the ticket.
// gloo's send and recv complete in wait() only. A Work that goes without (not waited for, or of a
// kind that tells nobody) ends with its last owner.
class WorkEnd : public c10d::Work {
 public:
  static void tell(c10d::Work& work, std::shared_ptr<OpenCall> call) {
    const std::lock_guard lock(work.*(&WorkEnd::mutex_));
    if (work.*(&WorkEnd::completed_)) return;  // by now: `call` goes here
    auto& callback = work.*(&WorkEnd::recordFunctionEndCallback_);
    callback = [call = std::move(call), profiler = std::move(callback)] {
      call->end();
      if (profiler) profiler();
    };
  }
};

}  // namespace oddrank::trace
