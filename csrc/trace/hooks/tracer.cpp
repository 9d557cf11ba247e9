// Frames into the record: the list of running frames, its resynchronisation, new threads and forks.
#include "trace/hooks/tracer.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/error.hpp"
#include "trace/hooks/names.hpp"
#include "trace/record/layout.hpp"
#include "trace/record/place.hpp"
#include "trace/record/source_hash.hpp"

namespace oddrank::trace {
namespace {

constexpr unsigned kNamelessCalls = 16;

// UTF-8 of a str that stays alive; never raises.
std::string_view view_of(PyObject* text) noexcept {
  Py_ssize_t size = 0;
  const char* bytes = text == nullptr || PyUnicode_Check(text) == 0
                          ? nullptr
                          : PyUnicode_AsUTF8AndSize(text, &size);
  if (bytes == nullptr) {
    PyErr_Clear();
    return {};
  }
  return {bytes, static_cast<std::size_t>(size)};
}

std::string_view view_of_bytes(PyObject* bytes) noexcept {
  if (bytes == nullptr || PyBytes_Check(bytes) == 0) return {};
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

// Name of the module whose globals a frame has.
std::string_view module_of(cpython::Frame frame) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  PyObject* globals = reinterpret_cast<const PyFrameObject*>(frame)->f_globals;
#else
  auto* globals = static_cast<PyObject*>(frame->globals_);
#endif
  static PyObject* const key = PyUnicode_InternFromString("__name__");
  if (globals == nullptr || PyDict_Check(globals) == 0) return {};
  return view_of(PyDict_GetItemWithError(globals, key));
}

// The error of whoever runs is kept aside while we ask CPython things.
class KeepError {
 public:
  KeepError() { PyErr_Fetch(&type_, &value_, &trace_); }
  ~KeepError() { PyErr_Restore(type_, value_, trace_); }
  KeepError(const KeepError&) = delete;
  KeepError& operator=(const KeepError&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* trace_ = nullptr;
};

CodeFacts facts_of(const PyCodeObject* code, Level level) noexcept {
  CodeFacts facts;
#if PY_VERSION_HEX < 0x030B0000
  facts.name = view_of(code->co_name);
#else
  facts.name = view_of(code->co_qualname);
#endif
  facts.file = view_of(code->co_filename);
  facts.linetable = view_of_bytes(code->co_linetable);
  facts.first_line = static_cast<std::uint32_t>(std::max(code->co_firstlineno, 0));
  facts.level = static_cast<std::uint32_t>(level);
  return facts;
}

std::size_t instructions_of(const PyCodeObject* code) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  return static_cast<std::size_t>(PyBytes_GET_SIZE(code->co_code)) / 2;
#else
  return static_cast<std::size_t>(Py_SIZE(code));
#endif
}

#if PY_VERSION_HEX < 0x030C0000
// A slot of every code object that CPython hands to a function as it destroys the object. It holds
// the object's own address.
void watch_code(const PyCodeObject* code) noexcept {
  static const Py_ssize_t slot = _PyEval_RequestCodeExtraIndex([](void* destroyed) {
    if (destroyed != nullptr) Tracer::get().forget(static_cast<const PyCodeObject*>(destroyed));
  });
  auto* object = reinterpret_cast<PyObject*>(const_cast<PyCodeObject*>(code));
  if (slot < 0 || _PyCode_SetExtra(object, slot, object) != 0) PyErr_Clear();
}
#else
void watch_code(const PyCodeObject* /*code*/) noexcept {
  static const int watcher = PyCode_AddWatcher([](PyCodeEvent event, PyCodeObject* code) {
    if (event == PY_CODE_EVENT_DESTROY) Tracer::get().forget(code);
    return 0;
  });
  if (watcher < 0) PyErr_Clear();
}
#endif

}  // namespace

TracedThread::~TracedThread() {
  // Not in a forked child: the slot is the parent's.
  if (pen_ != nullptr && owner_ == Tracer::get().made_) owner_->end_thread(*pen_);
}

void TracedThread::find_name() noexcept {
  --nameless_;
  const KeepError keep;
  const std::string name = thread_name(PyThreadState_Get());
  if (name.empty()) return;
  nameless_ = 0;
  owner_->name_thread(*pen_, name);
}

void TracedThread::push(cpython::Frame frame, CodeInfo info, Kind kind) noexcept {
  try {
    running_.push_back({frame, info});
  } catch (const std::exception&) {
    return;  // out of memory: the next event does not fit, and the stack is looked up anew
  }
  if (info.level == Level::kOff || pen_ == nullptr) return;
  const bool lines = info.level == Level::kLines;
  const std::uint32_t position = lines ? cpython::offset_of(frame) : kNoPosition;
  const auto code = static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | kIsOffset);
  pen_->enter(frame, Place::of(info.id, position, code));
}

CodeInfo TracedThread::enter(cpython::Frame frame, Kind kind) noexcept {
  const cpython::Frame caller = cpython::caller_of(frame);
  if (Tracer::get().hook_.sparse) {
    if (doubtful_) resynchronise(caller);
  } else if (caller != nullptr ? !stands_on(caller) : !running_.empty()) {
    resynchronise(caller);
  }
  const CodeInfo info = Tracer::get().info_of(frame);
  push(frame, info, kind);
  if (nameless_ != 0) [[unlikely]]
    find_name();
  if (info.level >= Level::kCalls && pen_ != nullptr) {
    pen_->append(Place::of(info.id, kNoPosition, static_cast<std::uint8_t>(kind)));
  }
  return info;
}

CodeInfo TracedThread::leave(cpython::Frame frame, Kind kind) noexcept {
  if (!stands_on(frame)) resynchronise(frame);
  if (running_.empty()) return {};
  const CodeInfo info = running_.back().info;
  if (info.level >= Level::kCalls && pen_ != nullptr) {
    pen_->append(Place::of(info.id, kNoPosition, static_cast<std::uint8_t>(kind)));
  }
  if (info.level != Level::kOff && pen_ != nullptr) pen_->leave();
  running_.pop_back();
  return running_.empty() ? CodeInfo{} : running_.back().info;
}

void TracedThread::enter_by_throw(cpython::Frame frame) noexcept {
  resynchronise(frame);
  doubtful_ = true;
  if (running_.empty() || running_.back().frame != frame || pen_ == nullptr) return;
  const CodeInfo info = running_.back().info;
  if (info.level < Level::kCalls) return;
  pen_->append(Place::of(info.id, kNoPosition, static_cast<std::uint8_t>(Kind::kThrow)));
}

void TracedThread::resynchronise(cpython::Frame innermost) noexcept {
  doubtful_ = false;
  std::vector<cpython::Frame> frames;
  try {
    for (cpython::Frame at = innermost; at != nullptr; at = cpython::caller_of(at)) {
      frames.push_back(at);
    }
  } catch (const std::exception&) {
    frames.clear();
  }
  const bool sparse = Tracer::get().hook_.sparse;
  running_.clear();
  if (pen_ != nullptr) {
    pen_->clear_stack();
    pen_->append(Place::of(0, kNoPosition, static_cast<std::uint8_t>(Kind::kGap)));
  }
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const CodeInfo info = Tracer::get().info_of(*frame);
    if (!sparse || info.level != Level::kOff) push(*frame, info, Kind::kLine);
  }
}

bool TracedThread::is_true_of(cpython::Frame innermost) const noexcept {
  auto known = running_.rbegin();
  std::size_t recorded = 0;
  const bool sparse = Tracer::get().hook_.sparse;
  for (cpython::Frame at = innermost; at != nullptr; at = cpython::caller_of(at)) {
    if (sparse && Tracer::get().info_of(at).level == Level::kOff) continue;
    if (known == running_.rend() || known->frame != at) return false;
    recorded += known->info.level == Level::kOff ? 0 : 1;
    ++known;
  }
  return known == running_.rend() && (pen_ == nullptr || pen_->depth() == recorded);
}

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
  static const int registered = ::pthread_atfork(nullptr, nullptr, &after_fork);
  static_cast<void>(registered);
  hook_ = hook;
  options_ = std::move(options);
  if (made_ == nullptr) {
    filter_ = std::move(filter);
    open(options_);
    return;
  }
  if (!(filter == filter_)) codes_.clear();
  filter_ = std::move(filter);
  generation_ = ++generations_;
  recorder_.store(made_, std::memory_order_release);
  made_->set_hook_state(HookState::kArmed);
}

void Tracer::open(const ArmOptions& options) {
  RecordPlace place = make_record_file(
      options.bases, options.job, {options.process.rank, options.process.is_child}, options.bytes);
  made_ = new Recorder(place.file, place.bytes, options.process);
  made_->set_hook_state(HookState::kArmed);
  path_ = place.path;
  codes_.clear();
  generation_ = ++generations_;
  recorder_.store(made_, std::memory_order_release);
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
  tracer.made_ = nullptr;
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
    const std::string path(file);
    return hashes_[path] = source_hash(path);
  } catch (const std::exception&) {
    return 0;
  }
}

CodeInfo Tracer::decide(cpython::Frame frame) noexcept {
  if (made_ == nullptr) return {};
  const KeepError keep;
  const PyCodeObject* code = frame->code;
  CodeInfo info;
  info.level =
      filter_.level_of(module_of(frame), view_of(code->co_filename), instructions_of(code));
  if (info.level != Level::kOff) {
    CodeFacts facts = facts_of(code, info.level);
    if (info.level == Level::kLines) facts.source_hash = hash_of(facts.file);
    info.id = made_->dictionary().add_code(facts);
    if (info.id == 0) info.level = Level::kOff;  // no room for its name
  }
  codes_.insert(code, info);
  watch_code(code);
  if (info.level != Level::kOff && hook_.include != nullptr) {
    hook_.include(const_cast<PyCodeObject*>(code), info.level);
  }
  return info;
}

}  // namespace oddrank::trace
