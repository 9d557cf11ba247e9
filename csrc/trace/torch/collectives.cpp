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
#include <typeinfo>
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

// Which argument is the message, where it is not the first one named input... or tensors: "" =
// none. The input, since every rank hands one in and ranks can be compared; in a scatter only the
// root does.
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

// Where an operation has what we look at; read from its schema, since torch versions differ.
struct Shape {
  std::size_t arguments = 0;
  std::size_t group = 0;
  std::optional<std::size_t> message;
  bool returns_work = false;
  bool point_to_point = false;
};

// Empty for an operation without a process group.
std::optional<Shape> shape_of(std::string_view op, const c10::FunctionSchema& schema) {
  Shape shape;
  std::optional<std::size_t> group;
  shape.arguments = schema.arguments().size();
  for (std::size_t i = 0; i < shape.arguments; ++i) {
    const std::string& name = schema.arguments()[i].name();
    if (!shape.message && is_message(op, name)) shape.message = i;
    if (name == "process_group") group = i;
  }
  if (!group) return std::nullopt;
  shape.group = *group;
  const auto& returns = schema.returns();
  shape.returns_work =
      !returns.empty() && returns.back().type()->kind() == c10::TypeKind::ClassType;
  shape.point_to_point = op.starts_with("send") || op.starts_with("recv");
  return shape;
}

// The group's own counter of collectives.
std::int64_t count_of(c10d::ProcessGroup& group) noexcept {
  try {
    return static_cast<std::int64_t>(group.getSequenceNumberForGroup());
  } catch (...) {
    return Collective::kNoSequence;
  }
}

// One operation's kernel. Recording never throws into the user's call; what the operation itself
// throws passes through.
class Recorder final : public c10::OperatorKernel {
 public:
  Recorder(std::string op, const Shape& shape) : op_(std::move(op)), shape_(shape) {}

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
    if (ticket != CollectiveList::kNoTicket) list().numbered(ticket, sequence(*stack, *group));
  }

 private:
  CollectiveList::Ticket issued(const torch::jit::Stack& stack,
                                c10::intrusive_ptr<c10d::ProcessGroup>& group) const noexcept {
    try {
      const c10::IValue* argument = stack.data() + (stack.size() - shape_.arguments);
      Collective entry;
      entry.thread = syscall(SYS_gettid);  // glibc 2.28 has no gettid()
      entry.op = op_.c_str();
      if (shape_.message) entry.bytes = bytes_of(argument[*shape_.message]);
      group = argument[shape_.group].toCustomClass<c10d::ProcessGroup>();
      entry.group = group->getGroupName();
      return list().issued(std::move(entry));
    } catch (...) {
      return CollectiveList::kNoTicket;
    }
  }

  // The backend's number for what was just issued. NCCL returns no Work for a blocking call: then
  // the group's counter, which another thread may have moved on in the meantime.
  std::int64_t sequence(const torch::jit::Stack& stack, c10d::ProcessGroup& group) noexcept {
    try {
      if (shape_.returns_work) {
        if (const auto work = stack.back().toCustomClass<c10d::Work>()) return number_of(*work);
      }
    } catch (...) {
      return Collective::kNoSequence;
    }
    return shape_.point_to_point ? Collective::kNoSequence : count_of(group);
  }

  // A Work that has no number throws, which takes 30 us: once for each kind of Work will do.
  std::int64_t number_of(const c10d::Work& work) noexcept {
    if (unnumbered_.load(std::memory_order_relaxed) == &typeid(work))
      return Collective::kNoSequence;
    try {
      return static_cast<std::int64_t>(work.getSequencenumber());
    } catch (...) {
      unnumbered_.store(&typeid(work), std::memory_order_relaxed);
      return Collective::kNoSequence;
    }
  }

  const std::string op_;
  const Shape shape_;
  std::atomic<const std::type_info*> unnumbered_ = nullptr;
};

// A kernel for every c10d operation that has a process group among its arguments, whatever this
// torch calls them.
void install() {
  auto* library = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::BackendSelect,
                                     __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  constexpr std::string_view kNamespace = "c10d::";
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with(kNamespace) || !name.overload_name.empty()) continue;
    const auto handle = dispatcher.findSchema(name);
    if (!handle) continue;
    const std::string op = name.name.substr(kNamespace.size());
    const std::optional<Shape> shape = shape_of(op, handle->schema());
    if (!shape) continue;
    auto kernel = c10::BoxedKernel::makeFromFunctor(std::make_unique<Recorder>(op, *shape));
    library->impl(op.c_str(), torch::CppFunction::makeFromBoxedKernel(std::move(kernel)));
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
