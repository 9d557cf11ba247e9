// One collective on its memory, ready to run: once for a check, or many times against the clock.
#pragma once

#include "bench/nccl/communicator.hpp"
#include "cuda/resources.hpp"

namespace oddrank::nccl {

// A call of one run on one rank. Offsets are in elements, from the begins of the send and of the
// receive window. peer: the root or the other side.
struct Call {
  int function;  // function_of() of its name
  std::size_t send_at, recv_at, count;
  int peer;
};
// "AllReduce" of ncclAllReduce; Error for a function that a run can't call.
int function_of(const std::string& name);

// The calls of one run; several are one group. The windows' bytes are equal on all ranks where
// NCCL's semantics allow it, for registered buffers need that.
struct Plan {
  std::string name;  // "ncclAllReduce (all_reduce, 8 bytes)": for messages
  std::vector<Call> calls;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  std::size_t element = 1;  // bytes
  std::size_t send_bytes = 0, recv_bytes = 0;
};

// Microseconds, taken on the GPU between events.
struct Times {
  // From the end of the run before to its own end. Empty where only the mean was asked for.
  std::vector<double> each;
  // Between one pair of events around all runs.
  double mean = 0;
};

// The parts of the memory that runs use: they send from its begin and receive from byte `recv_from`
// (0 in place), in turn in `number` windows, `stride` bytes apart. Equal on all ranks.
struct Windows {
  std::size_t recv_from = 0;
  std::size_t stride = 0;
  std::size_t number = 1;
};

// Every wait has the caller's deadline. If it passes, the communicator is aborted and Error says
// which run did not end; the operation is useless then. Not thread-safe. Made by std::make_shared;
// destroyed before its communicator is closed.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  // Throws Error where the windows don't fit into the memory.
  Operation(std::shared_ptr<Communicator> communicator, std::shared_ptr<Memory> memory, Plan plan,
            Windows windows);
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // The first windows.
  const char* send() const noexcept { return send_; }
  const char* recv() const noexcept { return recv_; }

  // One run in the first window, through to its end.
  void run(Deadline deadline);
  // `n` runs in turn over the windows, enqueued ahead of the GPU (64 at most) and waited for at the
  // end. each: with an event after every run; else one pair around all.
  Times block(std::size_t n, bool each, Deadline deadline);

 private:
  // Throws if the operation can't run any more; selects its device for a while.
  cuda::OnDevice enter() const;
  void issue(std::size_t turn, Deadline deadline);
  void connect(Deadline deadline);
  // `number` runs of a block's `all`.
  struct Part {
    std::size_t first, number, all;
  };
  double segment(const Part& part, bool each, Deadline deadline, Times& times);
  // `query` as cudaEventQuery answers; `what` names the awaited work, for the error.
  template <class Query, class What>
  void wait(const Query& query, Deadline deadline, const What& what);
  template <class What>
  void wait_for_all(Deadline deadline, const What& what);
  template <class Work>
  auto guarded(const Work& work);
  bool ends() const noexcept;
  void let_go() noexcept;

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Memory> memory_;
  Plan plan_;
  Windows windows_;
  char* send_ = nullptr;
  char* recv_ = nullptr;
  bool connected_ = false;
  cuda::Stream stream_;
  std::vector<cuda::Event> events_;
};

}  // namespace oddrank::nccl
