// Runs a collective once or in blocks, with events between the runs and a deadline on every wait.
#include "bench/nccl/operation.hpp"

#include <algorithm>
#include <iterator>

#include "os/error.hpp"

namespace oddrank::nccl {
namespace {

// Runs between two checks of the GPU's progress; twice as many are under way at most. CUDA's
// queue holds about a thousand, NCCL's own are shorter.
constexpr std::size_t kStride = 32;
// Runs with an event each before the stream is drained: bounds the number of events.
constexpr std::size_t kMostEvents = 4096;
// Most waits end within this, and a sleep costs some 50 us.
constexpr std::int64_t kSpinNs = 1'000'000;
constexpr std::int64_t kPatienceMs = 2000;

std::shared_ptr<Communicator> open(std::shared_ptr<Communicator> communicator) {
  if (communicator->get() == nullptr) throw Error("the communicator is closed");
  return communicator;
}

cuda::Stream stream_on(int device) {
  const cuda::OnDevice chosen(device);
  return {};
}

constexpr const char* kFunctions[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                      "Reduce",    "Gather",    "Scatter",       "AlltoAll",
                                      "Send",      "Recv"};

ncclResult_t issue_one(const Api& api, const Plan& plan, const Call& call, const char* send,
                       char* recv, ncclComm_t comm, cudaStream_t stream) noexcept {
  const char* from = send + call.send_at * plan.element;
  char* to = recv + call.recv_at * plan.element;
  switch (call.function) {
    case 0:
      return api.AllReduce(from, to, call.count, plan.type, plan.op, comm, stream);
    case 1:
      return api.AllGather(from, to, call.count, plan.type, comm, stream);
    case 2:
      return api.ReduceScatter(from, to, call.count, plan.type, plan.op, comm, stream);
    case 3:
      return api.Broadcast(from, to, call.count, plan.type, call.peer, comm, stream);
    case 4:
      return api.Reduce(from, to, call.count, plan.type, plan.op, call.peer, comm, stream);
    case 5:
      return api.Gather(from, to, call.count, plan.type, call.peer, comm, stream);
    case 6:
      return api.Scatter(from, to, call.count, plan.type, call.peer, comm, stream);
    case 7:
      return api.AlltoAll(from, to, call.count, plan.type, comm, stream);
    case 8:
      return api.Send(from, call.count, plan.type, call.peer, comm, stream);
    default:
      return api.Recv(to, call.count, plan.type, call.peer, comm, stream);
  }
}

// Issues one run on `stream`; hot. The pointers are the windows' begins.
ncclResult_t issue_all(const Api& api, const Plan& plan, const char* send, char* recv,
                       ncclComm_t comm, cudaStream_t stream) noexcept {
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

void require_events(std::vector<cuda::Event>& events, std::size_t number) {
  while (events.size() < number) events.emplace_back();
}

// Whether all windows lie within `capacity` bytes and apart from each other.
bool fit(const Windows& windows, std::size_t bytes, std::size_t capacity) {
  if (windows.number == 0 || bytes > capacity) return false;
  if (windows.number == 1) return true;
  return windows.stride >= bytes && windows.stride > 0 &&
         windows.number - 1 <= (capacity - bytes) / windows.stride;
}

}  // namespace

int function_of(const std::string& name) {
  const auto* const found = std::find(std::begin(kFunctions), std::end(kFunctions), name);
  if (found == std::end(kFunctions)) throw Error("nccl" + name + " is no call of a run");
  return static_cast<int>(found - kFunctions);
}

Operation::Operation(std::shared_ptr<Communicator> communicator, std::shared_ptr<Memory> memory,
                     Plan plan, Windows windows)
    : communicator_(open(std::move(communicator))),
      memory_(std::move(memory)),
      plan_(std::move(plan)),
      windows_(windows),
      send_(memory_->data()),
      stream_(stream_on(communicator_->device())) {
  const std::size_t bytes = memory_->bytes(), behind = windows.recv_from;
  const std::size_t largest = std::max(plan_.send_bytes, plan_.recv_bytes);
  const bool fits =
      behind <= bytes && (behind == 0 ? fit(windows, largest, bytes)
                                      : fit(windows, plan_.send_bytes, behind) &&
                                            fit(windows, plan_.recv_bytes, bytes - behind));
  if (!fits) {
    throw Error(plan_.name + ": " + std::to_string(windows.number) +
                " windows do not fit into the " + std::to_string(bytes) +
                " bytes reserved, received from byte " + std::to_string(behind) + " on");
  }
  recv_ = memory_->data() + behind;
}

cuda::OnDevice Operation::enter() const {
  if (communicator_->get() == nullptr) {
    throw Error(plan_.name + ": the communicator was closed or aborted");
  }
  if (memory_->data() != send_) throw Error(plan_.name + ": its memory was freed");
  return cuda::OnDevice(communicator_->device());
}

void Operation::issue(std::size_t turn, Deadline deadline) {
  const std::size_t at = turn % windows_.number * windows_.stride;
  communicator_->issued(issue_all(communicator_->api(), plan_, send_ + at, recv_ + at,
                                  communicator_->get(), stream_.get()),
                        plan_.name.c_str(), deadline);
}

// The first run of a size may connect ranks inside the call: NCCL then waits for the others without
// a deadline of its own. So it runs in a thread that can be left behind, with all it holds.
void Operation::connect(Deadline deadline) {
  if (!communicator_->direct()) return issue(0, deadline);
  const bool back =
      finished_by(deadline, communicator_->device(),
                  [self = shared_from_this(), deadline] { self->issue(0, deadline); });
  if (back) return;
  // No abort: it would free what that thread is using.
  memory_->abandon();
  communicator_->abandon();
  throw Error(plan_.name + ": NCCL did not come back from the first run before the deadline; " +
              cuda::place() + ". A rank is missing or can't be reached: run with NCCL_DEBUG=INFO");
}

template <class Query, class What>
void Operation::wait(const Query& query, Deadline deadline, const What& what) {
  const std::int64_t spin_until = monotonic_ns() + kSpinNs;
  while (true) {
    const cudaError_t state = query();
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) cuda::throw_error(state, "a collective on the GPU");
    cudaGetLastError();  // "not ready" is kept as the last error, too
    const std::int64_t now = monotonic_ns();
    if (now >= deadline.ns()) {
      const std::string late = what();
      let_go();
      throw Error(plan_.name + ": " + late +
                  " did not end before the deadline, the communicator was " + "aborted; " +
                  cuda::place());
    }
    if (now < spin_until) continue;
    try {
      communicator_->ready(plan_.name.c_str());  // throws errors of NCCL's own threads
    } catch (const Error&) {
      let_go();  // such an operation never ends
      throw;
    }
    const timespec pause{0, 50'000};
    ::nanosleep(&pause, nullptr);
  }
}

template <class What>
void Operation::wait_for_all(Deadline deadline, const What& what) {
  wait([&] { return cudaStreamQuery(stream_.get()); }, deadline, what);
}

// Leaves no work behind if `work` throws: memory may be freed afterwards.
template <class Work>
auto Operation::guarded(const Work& work) {
  const cuda::OnDevice chosen = enter();
  try {
    return work();
  } catch (...) {
    if (communicator_->get() != nullptr && !ends()) let_go();
    throw;
  }
}

// Whether all work ends soon, and none has failed.
bool Operation::ends() const noexcept {
  try {
    return stream_.wait(Deadline::after_ms(kPatienceMs));
  } catch (const Error&) {
    return false;
  }
}

// An aborted operation leaves the GPU; where that does not help, all it may touch is left as it is.
void Operation::let_go() noexcept {
  communicator_->abort();
  if (ends()) return;
  stream_.abandon();
  memory_->abandon();
}

void Operation::run(Deadline deadline) {
  guarded([&] {
    connected_ ? issue(0, deadline) : connect(deadline);
    wait_for_all(deadline, [] { return std::string("one run"); });
    connected_ = true;
  });
}

Times Operation::block(std::size_t n, bool each, Deadline deadline) {
  if (n == 0) return {};
  if (!connected_) run(deadline);
  return guarded([&] {
    Times times;
    double whole = 0;
    for (std::size_t done = 0; done < n;) {
      const std::size_t now = std::min(n - done, each ? kMostEvents : n);
      whole += segment({done, now, n}, each, deadline, times);
      done += now;
    }
    times.mean = whole / static_cast<double>(n);
    return times;
  });
}

// Order: a run that does not count, so that the GPU is busy and the ranks are together when the
// first event is reached; then run and event in turn. Returns the microseconds of all.
double Operation::segment(const Part& part, bool each, Deadline deadline, Times& times) {
  const std::size_t n = part.number;
  require_events(events_, each ? n + 1 : 4);
  const cudaStream_t stream = stream_.get();
  // The event after the run `behind`; with one pair around all, two markers take turns.
  const auto after = [&](std::size_t behind) -> cuda::Event& {
    return events_[each ? behind : 2 + behind / kStride % 2];
  };
  const auto where = [&] {
    std::size_t done = 0;
    while (each && done < n && cudaEventQuery(events_[done + 1].get()) == cudaSuccess) ++done;
    cudaGetLastError();
    const std::string all = std::to_string(part.all);
    return each ? "run " + std::to_string(part.first + done + 1) + " of " + all
                : "one of " + all + " runs";
  };
  issue(part.first, deadline);
  events_[0].record(stream);
  for (std::size_t i = 0; i < n; ++i) {
    if (i % kStride == 0 && i >= 2 * kStride) {
      const cudaEvent_t reached = after(i - kStride).get();
      wait([&] { return cudaEventQuery(reached); }, deadline, where);
    }
    issue(part.first + i, deadline);
    if (each || (i + 1) % kStride == 0) after(i + 1).record(stream);
  }
  cuda::Event& last = events_[each ? n : 1];
  if (!each) last.record(stream);
  wait_for_all(deadline, where);
  for (std::size_t i = 0; each && i < n; ++i) {
    times.each.push_back(cuda::seconds_between(events_[i], events_[i + 1]) * 1e6);
  }
  return cuda::seconds_between(events_[0], last) * 1e6;
}

}  // namespace oddrank::nccl
