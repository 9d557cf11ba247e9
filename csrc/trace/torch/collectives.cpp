// The collective recorder's kernels. The only file that includes torch's headers: they cost ten
// seconds a file.
//
// Every c10d operation, whoever issues it (Python, DDP's reducer, functional and compiled code),
// passes the dispatcher, which has a place for us on the key BackendSelect: a boxed kernel there
// sees one operation's arguments, calls what comes after it and sees the results. Other operations
// never take that way. Fake and traced tensors are handled before it: only what is really sent is
// recorded. Replays of CUDA graphs pass no dispatcher and are not seen.
#include "trace/torch/collectives.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <torch/library.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace oddrank::trace {
namespace {

// Leaked on purpose: threads may still issue collectives while static objects are being destroyed.
std::atomic<bool>& recording() {
  static auto* on = new std::atomic<bool>(false);
  return *on;
}

CollectiveList& list() {
  static auto* entries = new CollectiveList();
  return *entries;
}

// Which argument is the message, where it is not the first one named input...: "" = none. What the
// ranks of a group hand in is compared first, and all of them hand it in, but in a scatter only the
// root.
struct MessageArgument {
  std::string_view op;
  std::string_view argument;
};
constexpr MessageArgument kMessageArguments[] = {
    {"barrier", ""},
    {"monitored_barrier_", ""},
    {"scatter_", "output_tensors"},
};

bool is_message(std::string_view op, std::string_view argument) {
  for (const MessageArgument& row : kMessageArguments) {
    if (row.op == op) return row.argument == argument;
  }
  return argument.starts_with("input") || argument == "tensors";
}

std::int64_t bytes_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? tensor.numel() * static_cast<std::int64_t>(tensor.element_size()) : 0;
  }
  std::int64_t sum = 0;
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) sum += bytes_of(element);
  }
  return sum;
}

// One operation's kernel. Recording never throws into the user's call; what the operation itself
// throws passes through.
class Recorder final : public c10::OperatorKernel {
 public:
  Recorder(std::string op, std::size_t arguments, std::size_t group,
           std::optional<std::size_t> message)
      : op_(std::move(op)), arguments_(arguments), group_(group), message_(message) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                                  c10::DispatchKey::BackendSelect);
    if (!recording().load(std::memory_order_relaxed)) {
      op.redispatchBoxed(below, stack);
      return;
    }
    // Noted before it is issued: what blocks for ever in there is what one wants to see.
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    const CollectiveList::Ticket ticket = issued(*stack, group);
    op.redispatchBoxed(below, stack);
    if (ticket != CollectiveList::kNoTicket) list().numbered(ticket, sequence(*stack, group));
  }

 private:
  CollectiveList::Ticket issued(const torch::jit::Stack& stack,
                                c10::intrusive_ptr<c10d::ProcessGroup>& group) const noexcept {
    try {
      const auto argument = stack.end() - static_cast<std::ptrdiff_t>(arguments_);
      Collective entry;
      entry.thread = syscall(SYS_gettid);  // glibc 2.28 has no gettid()
      entry.op = op_.c_str();
      if (message_) entry.bytes = bytes_of(argument[static_cast<std::ptrdiff_t>(*message_)]);
      group = argument[static_cast<std::ptrdiff_t>(group_)].toCustomClass<c10d::ProcessGroup>();
      entry.group = group->getGroupName();
      return list().issued(std::move(entry));
    } catch (...) {
      return CollectiveList::kNoTicket;
    }
  }

  // The backend's number for this operation. Works of some backends have none, and NCCL returns no
  // Work for a blocking call: then the group's own counter, which another thread may have moved on
  // in the meantime.
  static std::int64_t sequence(const torch::jit::Stack& stack,
                               const c10::intrusive_ptr<c10d::ProcessGroup>& group) noexcept {
    try {
      if (!stack.empty() && stack.back().isObject()) {
        if (const auto work = stack.back().toCustomClass<c10d::Work>()) {
          return static_cast<std::int64_t>(work->getSequencenumber());
        }
      }
    } catch (...) {  // this Work has no number
    }
    try {
      return static_cast<std::int64_t>(group->getSequenceNumberForGroup());
    } catch (...) {
      return Collective::kNoSequence;
    }
  }

  const std::string op_;
  const std::size_t arguments_;
  const std::size_t group_;
  const std::optional<std::size_t> message_;
};

// A kernel for every c10d operation that has a process group among its arguments, whatever this
// torch calls them.
void install() {
  auto* library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::BackendSelect,
                                     __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != "c10d" || !name.overload_name.empty()) continue;
    const auto handle = dispatcher.findSchema(name);
    if (!handle) continue;
    const auto& arguments = handle->schema().arguments();
    const std::string op = name.name.substr(std::string_view("c10d::").size());
    std::optional<std::size_t> group;
    std::optional<std::size_t> message;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!message && is_message(op, arguments[i].name())) message = i;
      if (arguments[i].name() == "process_group") group = i;
    }
    if (!group) continue;
    library->impl(op.c_str(),
                  torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(
                      std::make_unique<Recorder>(op, arguments.size(), *group, message))));
  }
  pthread_atfork([] { list().lock(); }, [] { list().unlock(); }, [] { list().unlock(); });
}

}  // namespace

void start_collectives(std::size_t limit) {
  static std::once_flag once;
  std::call_once(once, install);
  list().restart(limit);
  recording().store(true, std::memory_order_relaxed);
}

void stop_collectives() noexcept { recording().store(false, std::memory_order_relaxed); }

std::vector<Collective> collectives() { return list().copy(); }

std::uint64_t dropped_collectives() { return list().dropped(); }

}  // namespace oddrank::trace
