// Beginning and end of the record, new threads, forks, and what is recorded of which code.
#include "trace/hooks/tracer.hpp"

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "base/error.hpp"
#include "trace/hooks/code_facts.hpp"
#include "trace/hooks/keep_error.hpp"
#include "trace/hooks/names.hpp"
#include "trace/record/layout.hpp"
#include "trace/record/place.hpp"
#include "trace/record/source_hash.hpp"

namespace oddrank::trace {
namespace {

constexpr unsigned kNamelessCalls = 16;
constexpr std::size_t kMostFiles = 1000;

// exit() tells its code to nobody else but those who ask glibc for it. Called after Python has
// cleared up; what handlers and destructors of libraries loaded before us do later is not seen.
int tell_exit() noexcept {
#ifdef __GLIBC__
  return ::on_exit(
      [](int code, void* /*unused*/) {
        Recorder* recorder = Tracer::made();
        // A child of a fork that told nobody (clone) has its parent's.
        if (recorder == nullptr ||
            recorder->header().pid != static_cast<std::uint32_t>(::getpid())) {
          return;
        }
        recorder->note_exit(code);
      },
      nullptr);
#else
  return 0;
#endif
}

}  // namespace

Tracer* Tracer::instance = nullptr;

Tracer& Tracer::make() {
  if (instance == nullptr) instance = new Tracer;
  return *instance;
}

__thread TracedThread* Tracer::this_thread __attribute__((tls_model("initial-exec"))) = nullptr;

__thread std::uint32_t Tracer::this_tid __attribute__((tls_model("initial-exec"))) = 0;

std::uint32_t Tracer::ask_tid() noexcept {
  this_tid = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return this_tid;
}

void Tracer::start(ArmOptions options, Filter filter, const Hook& hook) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &after_fork) + tell_exit();
  static_cast<void>(registered);
  hook_ = &hook;
  options_ = std::move(options);
  Recorder* made = made_.load(std::memory_order_relaxed);
  if (made == nullptr) {
    filter_ = std::move(filter);
    open(options_);
    return;
  }
  if (!(filter == filter_)) codes_.clear();
  filter_ = std::move(filter);
  generation_ = ++generations_;
  recorder_.store(made, std::memory_order_release);
  made->set_hook(hook.name);
  made->set_hook_state(HookState::kArmed);
}

void Tracer::open(const ArmOptions& options) {
  RecordPlace place = make_record_file(
      options.bases, options.job, {options.process.rank, options.process.is_child}, options.bytes);
  auto* made = new Recorder(place.file, place.bytes, options.process);
  made->set_hook_state(HookState::kArmed);
  made_.store(made, std::memory_order_release);
  path_ = place.path;
  codes_.clear();
  generation_ = ++generations_;
  recorder_.store(made, std::memory_order_release);
}

void Tracer::stop() noexcept {
  if (Recorder* recorder = recorder_.exchange(nullptr, std::memory_order_acq_rel)) {
    recorder->refresh_clock();
    recorder->set_hook_state(HookState::kDisarmed);
  }
  generation_ = 0;
  displaced_ = false;
}

void Tracer::note_displaced(PyObject* tool) noexcept {
  const bool now = tool != nullptr;
  Recorder* recorder = this->recorder();
  if (now == displaced_ || recorder == nullptr) return;
  displaced_ = now;
  recorder->set_hook_state(now ? HookState::kDisplaced : HookState::kArmed,
                           now ? tool_name(tool) : std::string());
}

// In C, before any Python of the child runs: what the parent records must not be touched.
void Tracer::after_fork() noexcept {
  Tracer& tracer = get();
  this_tid = 0;
  tracer.made_.store(nullptr, std::memory_order_relaxed);
  if (tracer.recorder_.exchange(nullptr, std::memory_order_relaxed) == nullptr) return;
  tracer.generation_ = 0;
  tracer.forked_ = true;
}

// False where there is no room: the child runs as without us.
bool Tracer::open_in_child() noexcept {
  forked_ = false;
  try {
    ArmOptions child = options_;
    child.bytes = kChildBytes;
    child.process.is_child = true;
    open(child);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

TracedThread* Tracer::prepare() noexcept {
  const KeepError keep;
  if (this_thread == nullptr) {
    static const pthread_key_t ends = [] {
      pthread_key_t key = 0;
      ::pthread_key_create(&key, [](void* thread) {
        this_thread = nullptr;
        delete static_cast<TracedThread*>(thread);
      });
      return key;
    }();
    this_thread = new (std::nothrow) TracedThread;
    if (this_thread == nullptr) return nullptr;
    ::pthread_setspecific(ends, this_thread);
  }
  if (forked_ && !open_in_child()) return nullptr;
  Recorder* recorder = this->recorder();
  if (recorder == nullptr) return nullptr;
  TracedThread& thread = *this_thread;
  if (thread.owner_ != recorder) {
    const PyThreadState* state = PyThreadState_Get();
    // It may get the slot and the ring of a thread that has ended.
    if (Recorder::listener != nullptr) Recorder::listener(false);
    try {
      const std::string name = thread_name(state);
      thread.pen_ = recorder->add_thread(state->thread_id, tid(), name);
      thread.nameless_ = name.empty() && thread.pen_ != nullptr ? kNamelessCalls : 0;
    } catch (const std::exception&) {
      thread.pen_ = nullptr;
    }
    thread.owner_ = recorder;
  }
  thread.generation_ = generation_;
  thread.running_.clear();
  if (thread.pen_ != nullptr) thread.pen_->clear_stack();
  thread.doubtful_ = true;  // frames of before may run
  return &thread;
}

std::uint64_t Tracer::hash_of(std::string_view file) noexcept {
  try {
    if (const auto known = hashes_.find(file); known != hashes_.end()) return known->second;
    // Code that is made while a program runs has a name of its own each time.
    if (hashes_.size() >= kMostFiles) hashes_.clear();
    const std::string path(file);
    return hashes_[path] = source_hash(path);
  } catch (const std::exception&) {
    return 0;
  }
}

CodeInfo Tracer::decide(cpython::Frame frame) noexcept {
  Recorder* made = made_.load(std::memory_order_relaxed);
  if (made == nullptr) return {};
  const KeepError keep;
  PyCodeObject* code = frame->code;
  CodeInfo info;
  const std::string_view module = module_of(frame);
  const std::string_view own_name = module == "__main__" ? run_as_main(frame) : std::string_view();
  info.level = filter_.level_of(module, own_name, file_of(code), instructions_of(code));
  if (info.level != Level::kOff) {
    CodeFacts facts = facts_of(code, info.level);
    if (info.level == Level::kLines) facts.source_hash = hash_of(facts.file);
    info.id = made->dictionary().add_code(facts);
    if (info.id == 0) info.level = Level::kOff;  // no room for its name
  }
  codes_.insert(code, info);
  watch_code(code);
  if (info.level != Level::kOff && hook_->include != nullptr) {
    hook_->include(code, info.level);
  }
  return info;
}

}  // namespace oddrank::trace
