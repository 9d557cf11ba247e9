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
#include <c10/core/TensorOptions.h>
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

#include "base/error.hpp"
#include "trace/torch/open_call.hpp"

namespace oddrank::trace {
namespace {

// Whom to tell; nullptr: nobody. Constant from the beginning and never destroyed, since threads may
// still issue collectives while static objects go.
constinit std::atomic<const CollectiveSink*> told = nullptr;

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

// Adds a tensor, or those of a list, to what the call carries.
void add_message(CollectiveCall& call, const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return;
    call.bytes += static_cast<std::uint64_t>(tensor.numel()) * tensor.element_size();
    call.type = static_cast<std::uint16_t>(tensor.scalar_type());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) add_message(call, element);
  }
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
std::optional<std::uint64_t> count_of(c10d::ProcessGroup& group) noexcept {
  try {
    return group.getSequenceNumberForGroup();
  } catch (...) {
    return std::nullopt;
  }
}

// Whether the Works of such an operation tell their end as it comes. What runs on a device does not
// (NCCL's Work tells its profiler as soon as it is enqueued), unless gloo carries it. The seam for
// NCCL: until an event or the flight recorder tells more, its collectives are shown as issued, with
// their number, and their end as unknown; open they are only while the call that issues them blocks
// (as it does where communicators are made).
bool ends_are_told(c10::DispatchKeySet keys, c10d::ProcessGroup& group) noexcept {
  if (keys.highestBackendKey() == c10::BackendComponent::CPUBit) return true;
  try {
    const auto device = c10::dispatchKeyToDeviceType(keys.highestPriorityTypeId());
    return group.getBackend(device)->getBackendName() == "gloo";
  } catch (...) {
    return false;
  }
}

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// One operation's kernel. Recording never throws into the user's call; what the operation itself
// throws passes through, and it has ended by that.
class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(std::string op, const Shape& shape) : op_(std::move(op)), shape_(shape) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                                  c10::DispatchKey::BackendSelect);
    std::shared_ptr<OpenCall> call;
    Group group;
    // Noted before it is issued: what blocks for ever in there is what one wants to see.
    if (const CollectiveSink* sink = told.load(std::memory_order_acquire)) {
      call = begin(*sink, *stack, group);
    }
    op.redispatchBoxed(below, stack);
    if (call) returned(*stack, below, *group, std::move(call));
  }

 private:
  std::shared_ptr<OpenCall> begin(const CollectiveSink& sink, const torch::jit::Stack& stack,
                                  Group& group) const noexcept {
    try {
      const c10::IValue* argument = stack.data() + (stack.size() - shape_.arguments);
      group = argument[shape_.group].toCustomClass<c10d::ProcessGroup>();
      const std::string& name = group->getGroupName();
      CollectiveCall call{name, op_};
      call.tid = static_cast<std::uint32_t>(syscall(SYS_gettid));  // glibc 2.28 has no gettid()
      if (shape_.message) add_message(call, argument[*shape_.message]);
      const std::uint64_t ticket = sink.begin(call);
      return ticket == 0 ? nullptr : std::make_shared<OpenCall>(sink, ticket);
    } catch (...) {
      return nullptr;
    }
  }

  // Issued: it has its number now. Without a Work it has ended.
  void returned(const torch::jit::Stack& stack, c10::DispatchKeySet keys, c10d::ProcessGroup& group,
                std::shared_ptr<OpenCall> call) noexcept {
    try {
      c10::intrusive_ptr<c10d::Work> work;
      if (shape_.returns_work) work = stack.back().toCustomClass<c10d::Work>();
      if (const auto sequence = sequence_of(work.get(), group)) call->numbered(*sequence);
      if (!ends_are_told(keys, group)) {
        call->issued();
      } else if (work) {
        WorkEnd::tell(*work, std::move(call));
      }
    } catch (...) {
      return;
    }
  }

  // The backend's number for what was just issued. NCCL returns no Work for a blocking call: then
  // the group's counter, which another thread may have moved on in the meantime.
  std::optional<std::uint64_t> sequence_of(const c10d::Work* work,
                                           c10d::ProcessGroup& group) noexcept {
    if (work != nullptr) return number_of(*work);
    return shape_.point_to_point ? std::nullopt : count_of(group);
  }

  // A Work that has no number throws, which takes 30 us: once for each kind of Work will do.
  std::optional<std::uint64_t> number_of(const c10d::Work& work) noexcept {
    if (unnumbered_.load(std::memory_order_relaxed) == &typeid(work)) return std::nullopt;
    try {
      return work.getSequencenumber();
    } catch (...) {
      unnumbered_.store(&typeid(work), std::memory_order_relaxed);
      return std::nullopt;
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
    auto kernel = c10::BoxedKernel::makeFromFunctor(std::make_unique<Kernel>(op, *shape));
    library->impl(op.c_str(), torch::CppFunction::makeFromBoxedKernel(std::move(kernel)));
  }
}

}  // namespace

void start_collectives(const CollectiveSink& sink) {
  if (sink.version != CollectiveSink::kVersion) {
    throw Error("_core and _torch are of different builds of oddrank: install it again");
  }
  static std::once_flag once;
  std::call_once(once, install);
  told.store(&sink, std::memory_order_release);
}

void stop_collectives() noexcept { told.store(nullptr, std::memory_order_release); }

}  // namespace oddrank::trace
