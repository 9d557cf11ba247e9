// The collective recorder's kernels. The only source file that includes torch's headers: they add
// ten seconds of compile time per file.
//
// Every c10d operation (from Python, DDP's reducer, functional or compiled code) passes torch's
// dispatcher. A boxed kernel at the key BackendSelect sees its arguments, calls the next kernel and
// sees its results. Other operations have no kernel there. Fake and traced tensors are handled at
// earlier keys: only real communication is recorded. Replays of CUDA graphs bypass the dispatcher
// and are not recorded.
#include "trace/torch/collectives.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <typeinfo>
#include <utility>

#include "os/error.hpp"
#include "os/proc.hpp"

// The one place that knows of torch's versions. No function that we call changed between 2.8 and
// 2.15. Operations and their arguments did: install() reads them from their schemas. The type of
// Work's mutex did too: WorkEnd deduces it.
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11,
              "oddrank's collective recorder needs torch 2.11 or newer");

namespace oddrank::trace {
namespace {

// The sink; nullptr: don't record. Constant-initialised and never destroyed: threads may issue
// collectives while static objects are destroyed.
constinit std::atomic<const CollectiveSink*> current_sink = nullptr;

// Operations whose message is not the first argument named input... or tensors; "": no message. The
// message is the input, which every rank has, so that ranks can be compared; in a scatter only the
// root has one.
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

// Lists of sizes have such names too, but no tensors in them.
bool is_side(std::string_view argument) {
  return (argument.starts_with("input") || argument.starts_with("output")) &&
         !argument.ends_with("sizes");
}

// Adds the bytes of a tensor or a list of tensors to `bytes`; sets `type` to theirs.
void add_tensors(const c10::IValue& value, std::uint64_t& bytes, std::uint16_t& type) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return;
    bytes += static_cast<std::uint64_t>(tensor.numel()) * tensor.element_size();
    type = static_cast<std::uint16_t>(tensor.scalar_type());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) add_tensors(element, bytes, type);
  }
}

// Positions of the arguments that we read; from the schema, since torch versions differ.
struct Shape {
  std::size_t arguments = 0;
  std::size_t group = 0;
  std::optional<std::size_t> message;
  std::optional<std::size_t> other;  // the other side's tensors, of an operation with two
  std::optional<std::size_t> partner;
  std::optional<std::size_t> tag;
  bool returns_work = false;
  Role role = Role::kNone;
  Side side = Side::kBoth;
};

Role role_of(std::string_view op, bool has_root) {
  if (op.starts_with("send")) return Role::kSend;
  if (op.starts_with("recv")) return Role::kRecv;
  return has_root ? Role::kRoot : Role::kNone;
}

// Returns empty for an operation without a process group.
std::optional<Shape> shape_of(std::string_view op, const c10::FunctionSchema& schema) {
  Shape shape;
  std::optional<std::size_t> group;
  shape.arguments = schema.arguments().size();
  for (std::size_t i = 0; i < shape.arguments; ++i) {
    const std::string& name = schema.arguments()[i].name();
    if (!shape.message && is_message(op, name)) {
      shape.message = i;
      if (name != "tensors") shape.side = name.starts_with("input") ? Side::kInput : Side::kOutput;
    } else if (!shape.other && is_side(name)) {
      shape.other = i;
    }
    if (name == "process_group") group = i;
    if (name == "root_rank" || name == "dst" || name == "src") shape.partner = i;
    if (name == "tag") shape.tag = i;
  }
  if (!group) return std::nullopt;
  shape.group = *group;
  const auto& returns = schema.returns();
  shape.returns_work =
      !returns.empty() && returns.back().type()->kind() == c10::TypeKind::ClassType;
  shape.role = role_of(op, shape.partner.has_value());
  if (is_pair(shape.role)) shape.side = shape.role == Role::kSend ? Side::kInput : Side::kOutput;
  return shape;
}

// Returns the counter of operations of a group or a back end; empty if it has none.
template <class Counts>
std::optional<std::uint64_t> count_of(Counts& of) noexcept {
  try {
    return of.getSequenceNumberForGroup();
  } catch (...) {
    return std::nullopt;
  }
}

// Types that threw when they were asked for something, which takes 30 us: don't ask them again.
class Refusals {
 public:
  bool has(const std::type_info& type) const noexcept {
    for (const auto& known : types_) {
      if (known.load(std::memory_order_relaxed) == &type) return true;
    }
    return false;
  }
  void add(const std::type_info& type) noexcept {
    for (auto& known : types_) {
      const std::type_info* free = nullptr;
      if (known.compare_exchange_strong(free, &type, std::memory_order_relaxed)) return;
    }
  }

 private:
  std::array<std::atomic<const std::type_info*>, 4> types_{};  // a job has one or two back ends
};

// The back end that an operation on this device uses, and what it knows of its group.
struct BackEnd {
  c10::intrusive_ptr<c10d::Backend> backend;
  c10::intrusive_ptr<c10d::Backend::Options> options;
  std::string name;  // empty: unknown
};

constinit Refusals without_options;

// Whether it numbers sends and receives along with collectives: the same collective then has
// another number on each rank. NCCL counts them apart.
bool numbers_messages(const BackEnd& back_end) noexcept {
  return back_end.name == "gloo" || back_end.name == "ucc";
}

BackEnd back_end_of(c10::DispatchKeySet keys, c10d::ProcessGroup& group) noexcept {
  BackEnd found;
  try {
    const bool on_cpu = keys.highestBackendKey() == c10::BackendComponent::CPUBit;
    found.backend = group.getBackend(
        on_cpu ? c10::DeviceType::CPU : c10::dispatchKeyToDeviceType(keys.highestPriorityTypeId()));
    found.name = found.backend->getBackendName();
    const std::type_info& type = typeid(*found.backend);
    if (without_options.has(type)) return found;
    try {
      found.options = found.backend->getBackendOptions();
    } catch (...) {
      without_options.add(type);
    }
  } catch (...) {
    return found;
  }
  return found;
}

// The default group has all ranks, which it gives as an empty list. Ranks of other groups with an
// empty list are unknown.
GroupFacts facts_of(c10d::ProcessGroup& group, const BackEnd& back_end) {
  GroupFacts facts{group.getGroupName(), back_end.name, group.getGroupDesc(), {}};
  if (group.getSize() > 0) facts.size = static_cast<std::uint32_t>(group.getSize());
  if (group.getRank() >= 0) facts.own = static_cast<std::uint32_t>(group.getRank());
  if (back_end.options) facts.ranks = back_end.options->global_ranks_in_group;
  facts.is_whole_job = facts.ranks.empty() && facts.text == "default_pg";
  return facts;
}

// Whether the operation's Work reports its real end. True on CPU and for gloo on a device; false
// for other device back ends: NCCL's Work calls its profiler callback when it is enqueued. An NCCL
// collective is recorded as issued, with its number and without an end; it is open only while the
// issuing call blocks (while a communicator is created).
bool reports_ends(c10::DispatchKeySet keys, const BackEnd& back_end) noexcept {
  return keys.highestBackendKey() == c10::BackendComponent::CPUBit || back_end.name == "gloo";
}

// Closes a ticket exactly once: by close() or, at the latest, its destructor.
class OpenCall {
 public:
  OpenCall(const CollectiveSink& sink, std::uint64_t ticket) noexcept
      : sink_(sink), ticket_(ticket) {}
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;
  ~OpenCall() { close(Phase::kEnd); }

  void numbered(std::uint64_t sequence) const noexcept { sink_.numbered(ticket_, sequence); }
  void counted(std::uint64_t count, bool is_issued) const noexcept {
    sink_.counted(ticket_, count, is_issued);
  }
  void close(Phase phase) noexcept {
    if (!closed_.exchange(true, std::memory_order_acq_rel)) sink_.closed(ticket_, phase);
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
    if (work.*(&WorkEnd::completed_)) {
      call->close(work.*(&WorkEnd::exception_) ? Phase::kFailed : Phase::kEnd);
      return;
    }
    auto& callback = work.*(&WorkEnd::recordFunctionEndCallback_);
    callback = [call = std::move(call), profiler = std::move(callback), &work] {
      call->close(work.*(&WorkEnd::exception_) ? Phase::kFailed : Phase::kEnd);
      if (profiler) profiler();
    };
  }
};

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// The kernel of one operation. Recording never throws into the user's call. An exception of the
// operation itself passes through and ends the collective.
class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(std::string op, const Shape& shape) : op_(std::move(op)), shape_(shape) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                                  c10::DispatchKey::BackendSelect);
    Issue issue;
    // Record the begin before issuing: the call may block for ever, and that must be visible.
    if (const CollectiveSink* sink = current_sink.load(std::memory_order_acquire)) {
      issue = begin(*sink, *stack, below);
    }
    try {
      op.redispatchBoxed(below, stack);
    } catch (...) {
      if (issue.call) {
        if (issue.counts) issue.call->counted(new_count(issue), false);
        issue.call->close(Phase::kFailed);
      }
      throw;
    }
    if (issue.call) returned(*stack, std::move(issue));
  }

 private:
  // The facts of an operation while it is issued.
  struct Issue {
    std::shared_ptr<OpenCall> call;  // null: it is not recorded
    Group group;
    BackEnd back_end;
    bool reports_end = false;
    bool counts = false;  // its record numbers the group's collectives
  };

  static std::uint64_t new_count(const Issue& issue) noexcept {
    return count_of(*issue.back_end.backend).value_or(0);
  }

  Issue begin(const CollectiveSink& sink, const torch::jit::Stack& stack,
              c10::DispatchKeySet keys) const noexcept {
    try {
      const c10::IValue* argument = stack.data() + (stack.size() - shape_.arguments);
      Issue issue;
      issue.group = argument[shape_.group].toCustomClass<c10d::ProcessGroup>();
      issue.back_end = back_end_of(keys, *issue.group);
      issue.reports_end = reports_ends(keys, issue.back_end);
      CollectiveCall call{.group = facts_of(*issue.group, issue.back_end), .operation = op_};
      if (numbers_messages(issue.back_end)) {
        call.count = count_of(*issue.back_end.backend).value_or(kNoCount);
        issue.counts = call.count != kNoCount;
      }
      CollectiveFacts& facts = call.facts;
      facts.tid = thread_id();
      facts.role = shape_.role;
      facts.side = shape_.side;
      if (shape_.message) add_tensors(argument[*shape_.message], facts.bytes, facts.type);
      if (shape_.other) add_tensors(argument[*shape_.other], facts.other, facts.type);
      if (shape_.tag) facts.other = static_cast<std::uint64_t>(argument[*shape_.tag].toInt());
      if (shape_.partner) {
        const std::int64_t rank = argument[*shape_.partner].toInt();
        if (rank >= 0) facts.partner = static_cast<std::uint32_t>(rank);
      }
      const std::uint64_t ticket = sink.begin(call);
      if (ticket != 0) issue.call = std::make_shared<OpenCall>(sink, ticket);
      return issue;
    } catch (...) {
      return {};
    }
  }

  // After issuing: records the number. Without a Work the collective has ended.
  void returned(const torch::jit::Stack& stack, Issue issue) noexcept {
    try {
      c10::intrusive_ptr<c10d::Work> work;
      if (shape_.returns_work) work = stack.back().toCustomClass<c10d::Work>();
      if (issue.counts) {
        issue.call->counted(new_count(issue), !is_pair(shape_.role));
      } else if (!is_pair(shape_.role)) {
        const auto sequence = sequence_of(work.get(), *issue.group);
        if (sequence) issue.call->numbered(*sequence);
      }
      if (!issue.reports_end) {
        issue.call->close(Phase::kIssued);
      } else if (work) {
        WorkEnd::tell(*work, std::move(issue.call));
      }
    } catch (...) {
      return;
    }
  }

  // Returns the back end's number of the operation just issued. NCCL returns no Work for a blocking
  // call: then returns the group's counter, which another thread may have advanced meanwhile.
  std::optional<std::uint64_t> sequence_of(const c10d::Work* work,
                                           c10d::ProcessGroup& group) noexcept {
    return work != nullptr ? number_of(*work) : count_of(group);
  }

  std::optional<std::uint64_t> number_of(const c10d::Work& work) noexcept {
    if (unnumbered_.has(typeid(work))) return std::nullopt;
    try {
      return work.getSequencenumber();
    } catch (...) {
      unnumbered_.add(typeid(work));
      return std::nullopt;
    }
  }

  const std::string op_;
  const Shape shape_;
  Refusals unnumbered_;
};

// Installs a kernel for every c10d operation that takes a process group, by any name that this
// version of torch has for it.
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
  current_sink.store(&sink, std::memory_order_release);
}

void stop_collectives() noexcept { current_sink.store(nullptr, std::memory_order_release); }

}  // namespace oddrank::trace
