// Starts and stops the record, prepares threads and forked children, decides each code's level.
// Behind it, what it has of each thread, and the thread that samples.
#include "trace/hooks/tracer.hpp"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>

#include "os/clock.hpp"
#include "os/cpython.hpp"
#include "os/error.hpp"
#include "os/proc.hpp"
#include "trace/cpython/code.hpp"
#include "trace/format/format.hpp"
#include "trace/write/record_files.hpp"

namespace oddrank::trace {
namespace {

constexpr unsigned kNamelessCalls = 16;

// Registers a handler that notes exit()'s code, which only glibc's on_exit() gives. It runs after
// Python finalized; handlers and destructors of libraries loaded before us run later, unseen.
int tell_exit() noexcept {
  return ::on_exit(
      [](int code, void* /*unused*/) {
        Recorder* recorder = Tracer::made();
        // A child made by clone() runs no fork handler and still has its parent's recorder.
        if (recorder == nullptr ||
            recorder->header().process.pid != static_cast<std::uint32_t>(::getpid())) {
          return;
        }
        recorder->note_exit(code);
      },
      nullptr);
}

// Most callers that reaches_top() walks: CPython's default recursion limit. It walks them at every
// call from code that is not recorded.
constexpr int kFurthest = 1000;

using std::chrono::nanoseconds;

constexpr nanoseconds kPause = std::chrono::milliseconds(50);
constexpr nanoseconds kGilInterval = std::chrono::seconds(1);
// A sample's CPU time is at most this part of the time to the next one: many threads, deep stacks.
constexpr int kLeastIdle = 200;
constexpr std::size_t kStackBytes = std::size_t{512} << 10;
constexpr int kMostYields = 10'000;

// pthread_join() returns a moment before the kernel forgets the thread.
void wait_until_gone(pid_t tid) noexcept {
  for (int i = 0; i < kMostYields && ::syscall(SYS_tgkill, ::getpid(), tid, 0) == 0; ++i) {
    ::sched_yield();
  }
}

std::uint64_t thread_cpu_ns() noexcept {
  return static_cast<std::uint64_t>(clock_ns(CLOCK_THREAD_CPUTIME_ID));
}

}  // namespace

Tracer* Tracer::instance = nullptr;

Tracer& Tracer::make() {
  if (instance == nullptr) instance = new Tracer;
  return *instance;
}

__thread TracedThread* Tracer::this_thread __attribute__((tls_model("initial-exec"))) = nullptr;

std::optional<pthread_key_t> Tracer::key_of_threads() noexcept {
  static const std::optional<pthread_key_t> made = []() -> std::optional<pthread_key_t> {
    pthread_key_t key = 0;
    const int failed = ::pthread_key_create(&key, [](void* thread) {
      this_thread = nullptr;
      delete static_cast<TracedThread*>(thread);
    });
    return failed == 0 ? std::optional(key) : std::nullopt;
  }();
  return made;
}

void Tracer::start(ArmOptions options, Filter filter) {
  if (!key_of_threads()) {
    throw Error("no key for data of threads is left: libraries have made the process's 1,024");
  }
  static const int registered = ::pthread_atfork(nullptr, nullptr, &after_fork) + tell_exit();
  static_cast<void>(registered);
  options_ = std::move(options);
  budget_.start(options_.budget, hook::kCosts);
  raise_all();
  forked_ = false;  // this is the record of a child that arms itself
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
  made->set_hook_state(HookState::kArmed);
  sampler_.want(sampling());
}

void Tracer::open(const ArmOptions& options) {
  NewRecordFile created =
      make_record_file(options.bases, options.job,
                       {options.process.rank, options.process.is_child != 0}, options.bytes);
  auto* made = new Recorder(created.file, created.bytes, options.process);
  made->set_hook_state(HookState::kArmed);
  made_.store(made, std::memory_order_release);
  path_ = created.path;
  codes_.clear();
  budget_.clear();
  generation_ = ++generations_;
  recorder_.store(made, std::memory_order_release);
  sampler_.want(sampling());
}

void Tracer::stop() noexcept {
  if (Recorder* recorder = recorder_.exchange(nullptr, std::memory_order_acq_rel)) {
    recorder->refresh_clock();
    recorder->marks().forget_open_sections();
    recorder->note_rest(0);
    recorder->set_hook_state(HookState::kDisarmed);
  }
  budget_.wake(0);
  sampler_.want(Sampling::kNone);
  generation_ = 0;
  displaced_ = false;
  forked_ = false;
}

void Tracer::note_displaced(PyObject* tool) noexcept {
  const bool now = tool != nullptr;
  Recorder* recorder = this->recorder();
  if (now == displaced_ || recorder == nullptr) return;
  displaced_ = now;
  recorder->set_hook_state(now ? HookState::kDisplaced : HookState::kArmed,
                           now ? tool_name(tool) : std::string());
}

// Runs in C before any Python of the child: the child must not write into the parent's record.
void Tracer::after_fork() noexcept {
  Tracer& tracer = get();
  new (&tracer.mutex_) std::mutex;  // a thread of the parent may have held it
  tracer.threads_.clear();
  tracer.ended_cpu_ns_ = 0;
  tracer.applying_ = false;
  tracer.importing_ = this_thread != nullptr && this_thread->imports_ != nullptr ? 1 : 0;
  tracer.sampler_.forget();
  tracer.made_.store(nullptr, std::memory_order_relaxed);
  if (tracer.recorder_.exchange(nullptr, std::memory_order_relaxed) == nullptr) return;
  tracer.generation_ = 0;
  tracer.forked_ = true;
}

// Returns false if there is no room: the child then runs unrecorded.
bool Tracer::open_in_child() noexcept {
  forked_ = false;
  raise_all();
  try {
    ArmOptions child = options_;
    child.bytes = kChildBytes;
    child.process.is_child = 1;
    open(child);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

TracedThread* Tracer::prepare() noexcept {
  const KeepError keep;
  if (this_thread == nullptr) {
    this_thread = new (std::nothrow) TracedThread;
    if (this_thread == nullptr) return nullptr;
    ::pthread_setspecific(*key_of_threads(), this_thread);
  }
  if (forked_ && !open_in_child()) return nullptr;
  Recorder* recorder = this->recorder();
  if (recorder == nullptr || applying_) return nullptr;
  TracedThread& thread = *this_thread;
  if (thread.owner_ != recorder) {
    const PyThreadState* state = PyThreadState_Get();
    // add_thread() may reuse an ended thread's slot and ring: let the listener read them first.
    if (Recorder::listener != nullptr) Recorder::listener(false);
    try {
      const std::string name = thread_name(state);
      // Naming may have run Python, and a review in another thread: it holds the mutex.
      if (applying_) return nullptr;
      thread.pen_ = recorder->add_thread(state->thread_id, thread_id(), name);
      thread.nameless_ = name.empty() && thread.pen_ != nullptr ? kNamelessCalls : 0;
      const std::lock_guard lock(mutex_);
      std::erase(threads_, &thread);
      threads_.push_back(&thread);
    } catch (const std::exception&) {
      thread.pen_ = nullptr;
    }
    thread.owner_ = recorder;
  }
  thread.generation_ = generation_;
  thread.python_id_ = PyThreadState_Get()->thread_id;
  thread.cpu_ns_ = thread_cpu_ns();
  thread.left_ = budget_.pause();
  thread.set_import(nullptr);
  thread.running_.clear();
  if (thread.pen_ != nullptr) thread.pen_->clear_stack();
  thread.doubtful_ = true;  // earlier frames may still run
  return &thread;
}

// Called by the thread, at its end: what it has used since its last review counts in another's.
void Tracer::remove(TracedThread& thread) noexcept {
  const std::lock_guard lock(mutex_);
  const bool known = std::erase(threads_, &thread) != 0 && thread.cpu_ns_ != 0;
  ended_cpu_ns_ += known ? thread_cpu_ns() - thread.cpu_ns_ : 0;
}

void Tracer::review(TracedThread& thread, cpython::Frame innermost) noexcept {
  if (rests()) {  // a tool has put our function back
    hook::set_quiet(PyThreadState_Get(), true);
  } else if (thread.cpu_ns_ == 0) {
    thread.cpu_ns_ = thread_cpu_ns();
  } else if (!applying_ && options_.budget > 0) {
    applying_ = true;
    const std::uint64_t cpu_ns = thread_cpu_ns();
    std::unique_lock lock(mutex_);
    const std::uint64_t used_ns = cpu_ns - thread.cpu_ns_ + std::exchange(ended_cpu_ns_, 0);
    lock.unlock();
    const bool may_rest = hook::kMayRest && sampler_.can_sample();
    const auto changes =
        budget_.review(used_ns, static_cast<std::uint64_t>(monotonic_ns()), may_rest);
    thread.cpu_ns_ = cpu_ns;
    if (!changes.empty()) apply(changes, thread, innermost);
    if (rests()) rest(thread, innermost);
    applying_ = false;
    sampler_.want(sampling());
  }
  thread.left_ = budget_.pause();
}

// Asks the hook for other events, then reads the stacks that hold changed code again: no position
// stays that later lines would not move, no frame whose end gives no event. The frames tell the
// right ones.
void Tracer::apply(std::span<const LevelChange> changes, TracedThread& thread,
                   cpython::Frame here) noexcept {
  const KeepError keep;
  Recorder* made = made_.load(std::memory_order_relaxed);
  if (made == nullptr) return;
  made->dictionary().note_levels(changes, read_tsc());
  // By copies: append() may let go of the GIL, and change_codes() run Python. Another thread's code
  // then moves what `changes` views.
  std::vector<LevelChange> lasting;
  try {
    std::ranges::copy_if(changes, std::back_inserter(lasting), &LevelChange::lasting);
  } catch (const std::bad_alloc&) {
    lasting.clear();  // the ring lacks these events, the dictionary has the levels
  }
  for (const LevelChange& change : lasting) {
    if (thread.pen_ == nullptr) break;
    thread.pen_->append(
        Place::of(change.code, static_cast<std::uint32_t>(change.level), Kind::kLevel));
  }
  change_codes();
  each_traced([&](TracedThread& found, PyThreadState* state, cpython::Frame innermost) {
    if (found.imports_ != nullptr) return;  // its events begin anew
    if (&found == &thread) innermost = here;
    if (found.is_true_of(innermost)) return;
    found.resynchronise(innermost);
    hook::settle(state, found.empty() ? Level::kOff : found.top().info.level);
  });
}

// Shows at once that the places are samples: no event moves them from here on. The gaps are noted
// here, not when events come again: a thread that sleeps then has done nothing.
void Tracer::rest(TracedThread& thread, cpython::Frame here) noexcept {
  const std::uint64_t tsc = read_tsc();
  recorder()->note_rest(tsc);
  each_traced([&](TracedThread& found, const PyThreadState*, cpython::Frame innermost) {
    found.sample(&found == &thread ? here : innermost, tsc);
    if (found.pen_ != nullptr) found.pen_->note_gap();
  });
  cpython::each_thread([](PyThreadState* state) { hook::set_quiet(state, true); });
}

void Tracer::wake() noexcept {
  if (!rests() || !running() || applying_) return;
  const KeepError keep;
  applying_ = true;
  cpython::each_thread([](PyThreadState* state) { hook::set_quiet(state, false); });
  each_traced([](TracedThread& found, PyThreadState* state, cpython::Frame innermost) {
    if (found.imports_ != nullptr) {
      hook::set_quiet(state, true);
      return;
    }
    found.wake(innermost);
    hook::settle(state, found.empty() ? Level::kOff : found.top().info.level);
  });
  budget_.wake(static_cast<std::uint64_t>(monotonic_ns()));
  recorder()->note_rest(0);
  const std::lock_guard lock(mutex_);
  ended_cpu_ns_ = 0;
  applying_ = false;
}

template <class See>
void Tracer::each_traced(See see) noexcept {
  const std::lock_guard lock(mutex_);
  cpython::each_thread([&](PyThreadState* state) {
    // By ident, never by address: C++ threads leave theirs to others.
    const auto found = std::ranges::find(threads_, state->thread_id, &TracedThread::python_id_);
    if (found == threads_.end() || (*found)->generation_ != generation_) return;
    if ((*found)->lines_lost() && !rests()) return;
    cpython::Frame innermost = cpython::innermost(state);
    if (innermost != nullptr && !cpython::is_python(innermost)) {
      innermost = cpython::caller_of(innermost);
    }
    see(**found, state, innermost);
  });
}

void Tracer::sample() noexcept {
  if (applying_) return;
  if (budget_.is_rested(static_cast<std::uint64_t>(monotonic_ns()))) wake();
  sampler_.want(sampling());
  if (!running()) return;
  const std::uint64_t tsc = read_tsc();
  each_traced([tsc](TracedThread& thread, const PyThreadState*, cpython::Frame innermost) {
    thread.sample(innermost, tsc);
  });
}

// Gives all code objects the levels of the budget. Asking may run Python, which may end others.
void Tracer::change_codes() noexcept {
  std::vector<std::pair<PyObject*, Level>> changed;
  codes_.each([&](const PyCodeObject* code, CodeInfo& info) {
    if (info.id == 0 || info.level == budget_.level(info.id)) return;
    info.level = budget_.level(info.id);
    auto* object = reinterpret_cast<PyObject*>(const_cast<PyCodeObject*>(code));
    try {
      changed.emplace_back(object, info.level);
      Py_INCREF(object);
    } catch (const std::exception&) {
      // Out of memory: its events go on, and leave no more than its level wants.
    }
  });
  for (const auto& [object, level] : changed) {
    hook::include(reinterpret_cast<PyCodeObject*>(object), level);
    Py_DECREF(object);
  }
}

// At a start, and in a forked child: all code begins at the filter's level.
void Tracer::raise_all() noexcept {
  const KeepError keep;
  const auto changes = budget_.raise_all();
  sampler_.want(Sampling::kNone);
  if (changes.empty()) return;
  Recorder* made = made_.load(std::memory_order_relaxed);
  if (made != nullptr) made->dictionary().note_levels(changes, read_tsc());
  change_codes();
}

bool Tracer::records_import(std::string_view module, const PyCodeObject* code) const noexcept {
  return options_.budget <= 0 || filter_.level_of(module, {}, file_of(code), 0) == Level::kLines;
}

CodeInfo Tracer::decide(cpython::Frame frame) noexcept {
  Recorder* made = made_.load(std::memory_order_relaxed);
  if (made == nullptr) return {};
  const KeepError keep;
  PyCodeObject* code = cpython::code_of(frame);
  CodeInfo info;
  const std::string_view module = module_of(frame);
  const std::string_view own_name = module == "__main__" ? run_as_main(frame) : std::string_view();
  info.level = filter_.level_of(module, own_name, file_of(code), instructions_of(code));
  if (info.level != Level::kOff) {
    std::string table;
    info.id = made->dictionary().add_code(facts_of(code, info.level, table));
    if (info.id == 0) {  // no room: the frame stays in the stacks, as "?"
      info = {made->dictionary().lost_code(), Level::kWhere};
      if (info.id == 0) info.level = Level::kOff;
    }
  }
  if (info.id != 0) {
    info =
        budget_.add(info.id, info.level) ? CodeInfo{info.id, budget_.level(info.id)} : CodeInfo{};
  }
  codes_.insert(code, info);
  watch_code(code);
  if (info.level != Level::kOff) hook::include(code, info.level);
  return info;
}

// The list of running frames and the shadow stack of a thread.

TracedThread::~TracedThread() {
  Tracer::get().remove(*this);
  // In a forked child the slot is the parent's: leave it.
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
    return;  // out of memory: the next event does not match, and resynchronise() runs
  }
  if (info.level == Level::kOff || pen_ == nullptr) return;
  const bool has_line = info.level == Level::kLines && !lines_lost_;
  const std::uint32_t position = has_line ? cpython::offset_of(frame) : kNoPosition;
  pen_->enter(Place::of(info.id, position, kind, kIsOffset));
}

CodeInfo TracedThread::enter(cpython::Frame frame, Kind kind) noexcept {
  const cpython::Frame caller = cpython::caller_of(frame);
  if (kSparse) {
    if (!stands_on(caller) && !reaches_top(caller)) resynchronise(caller);
  } else if (caller != nullptr ? !stands_on(caller) : !running_.empty()) {
    resynchronise(caller);
  }
  if (shows_more_) [[unlikely]]
    rebuild(caller);
  const CodeInfo info = Tracer::get().info_of(frame);
  Tracer::get().budget().count_call(info.id);
  push(frame, info, kind);
  if (nameless_ != 0) [[unlikely]]
    find_name();
  if (info.level >= Level::kCalls && pen_ != nullptr) {
    pen_->append(Place::of(info.id, kNoPosition, kind));
  }
  return info;
}

bool TracedThread::reaches_top(cpython::Frame caller) const noexcept {
  if (doubtful_) return false;
  int left = kFurthest;
  if (running_.empty()) {
    for (cpython::Frame at = caller; at != nullptr && left > 0;
         at = cpython::caller_of(at), --left) {
      if (Tracer::get().info_of(at).level != Level::kOff) return false;
    }
    return true;
  }
  const cpython::Frame top = running_.back().frame;
  for (cpython::Frame at = caller; at != nullptr && at != top; at = at->previous) {
    if (--left == 0) return true;
    if (at->previous == nullptr) return false;
    // 3.14 links the frame of a generator that delegates throw(), but sends no event for it.
    if (cpython::is_generators(at) && Tracer::get().info_of(at).level != Level::kOff) return false;
  }
  return caller != nullptr;
}

CodeInfo TracedThread::leave(cpython::Frame frame, Kind kind) noexcept {
  if (!stands_on(frame) || shows_more_) catch_up(frame);
  if (running_.empty()) return {};
  const CodeInfo info = running_.back().info;
  Tracer::get().budget().count_call(info.id);
  if (info.level >= Level::kCalls && pen_ != nullptr) {
    pen_->append(Place::of(info.id, kNoPosition, kind));
  }
  if (info.level != Level::kOff && pen_ != nullptr) pen_->leave();
  running_.pop_back();
  return running_.empty() ? CodeInfo{} : running_.back().info;
}

void TracedThread::enter_by_throw(cpython::Frame frame) noexcept {
  resynchronise(frame);
  if (running_.empty() || running_.back().frame != frame || pen_ == nullptr) return;
  const CodeInfo info = running_.back().info;
  if (info.level < Level::kCalls) return;
  pen_->append(Place::of(info.id, kNoPosition, Kind::kThrow));
}

void TracedThread::set_import(cpython::Frame frame) noexcept {
  Tracer& tracer = Tracer::get();
  tracer.importing_ += static_cast<int>(frame != nullptr) - static_cast<int>(imports_ != nullptr);
  imports_ = frame;
}

void TracedThread::begin_import(cpython::Frame frame) noexcept {
  set_import(frame);
  if (!stands_on(frame) || shows_more_) rebuild(frame);
  Tracer::get().sampler_.want(Sampling::kStacks);
}

void TracedThread::end_import(cpython::Frame frame) noexcept {
  set_import(nullptr);
  if (Tracer::get().rests()) return;
  if (!lines_lost_ && (!stands_on(frame) || shows_more_)) rebuild(frame);
}

// Counts anew: the CPU time since the last review was spent in code without events.
void TracedThread::wake(cpython::Frame innermost) noexcept {
  cpu_ns_ = 0;
  left_ = 1;
  const bool lost = lines_lost_;
  resynchronise(innermost);
  if (lost) lose_lines();
}

void TracedThread::lose_lines() noexcept {
  if (lines_lost_) return;
  lines_lost_ = true;
  if (pen_ == nullptr || Tracer::get().rests()) return;
  shows_more_ = false;
  pen_->clear_stack();
  for (const Running& one : running_) {
    if (one.info.level == Level::kOff) continue;
    pen_->enter(Place::of(one.info.id, kNoPosition, Kind::kLine, kIsOffset));
  }
}

void TracedThread::catch_up(cpython::Frame frame) noexcept {
  if (stands_on(frame) && !lines_lost_) {
    rebuild(frame);
  } else {
    resynchronise(frame);
  }
}

void TracedThread::resynchronise(cpython::Frame innermost) noexcept {
  if (pen_ != nullptr) pen_->note_gap();
  rebuild(innermost);
}

void TracedThread::sample(cpython::Frame innermost, std::uint64_t tsc) noexcept {
  if (pen_ == nullptr) return;
  Tracer& tracer = Tracer::get();
  const bool rests = tracer.rests();
  const bool quiet = rests || imports_ != nullptr;
  // A code object that no event has shown yet is none that was lowered, unless none comes.
  const auto info_of = [&tracer, quiet](cpython::Frame frame) {
    if (quiet) return tracer.info_of(frame);
    const CodeInfo* known = tracer.codes_.find(cpython::code_of(frame));
    return known != nullptr ? *known : CodeInfo{};
  };
  std::vector<std::pair<cpython::Frame, bool>> frames;  // and whether it has no events now
  bool within = quiet;
  bool lowered = within;
  try {
    for (cpython::Frame at = innermost; at != nullptr; at = cpython::caller_of(at)) {
      within = within && (rests || at != imports_);
      const CodeInfo info = info_of(at);
      if (info.id == 0) continue;
      frames.emplace_back(at, within || tracer.budget_.is_lowered(info.id));
      lowered = lowered || frames.back().second;
    }
  } catch (const std::exception&) {
    return;
  }
  if (!lowered) {
    if (shows_more_) rebuild(innermost);
    return;
  }
  shows_more_ = !lists(innermost);
  pen_->note_sample(tsc);
  pen_->clear_stack();
  for (auto one = frames.rbegin(); one != frames.rend(); ++one) {
    const auto [frame, is_sampled] = *one;
    const CodeInfo info = info_of(frame);
    const bool has_line = info.level == Level::kLines || is_sampled;
    const Kind kind =
        is_sampled && (quiet || info.level != Level::kLines) ? Kind::kSampled : Kind::kLine;
    pen_->enter(
        Place::of(info.id, has_line ? cpython::offset_of(frame) : kNoPosition, kind, kIsOffset));
    shows_more_ = shows_more_ || info.level == Level::kOff;
  }
}

void TracedThread::rebuild(cpython::Frame innermost) noexcept {
  doubtful_ = false;
  lines_lost_ = false;
  shows_more_ = false;
  std::vector<cpython::Frame> frames;
  try {
    for (cpython::Frame at = innermost; at != nullptr; at = cpython::caller_of(at)) {
      frames.push_back(at);
    }
  } catch (const std::exception&) {
    frames.clear();
  }
  running_.clear();
  if (pen_ != nullptr) pen_->clear_stack();
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const CodeInfo info = Tracer::get().info_of(*frame);
    if (!kSparse || info.level != Level::kOff) push(*frame, info, Kind::kLine);
  }
}

bool TracedThread::is_true_of(cpython::Frame innermost) const noexcept {
  if (!lists(innermost)) return false;
  const auto recorded = std::ranges::count_if(
      running_, [](const Running& one) { return one.info.level != Level::kOff; });
  return pen_ == nullptr || shows_more_ || pen_->depth() == static_cast<std::uint64_t>(recorded);
}

bool TracedThread::lists(cpython::Frame innermost) const noexcept {
  auto known = running_.rbegin();
  for (cpython::Frame at = innermost; at != nullptr; at = cpython::caller_of(at)) {
    const Level level = Tracer::get().info_of(at).level;
    if (kSparse && level == Level::kOff) continue;
    if (known == running_.rend() || known->frame != at || known->info.level != level) return false;
    ++known;
  }
  return known == running_.rend();
}

// The sampling thread. Its functions are not noexcept: if Python finalizes after all, versions
// before 3.14 end the thread inside PyGILState_Ensure() by unwinding its stack.

void Sampler::want(Sampling wanted) noexcept {
  const std::lock_guard lock(mutex_);
  if (wanted_ == wanted) return;
  wanted_ = wanted;
  start_if_wanted();
  changed_.notify_all();
}

void Sampler::start_if_wanted() noexcept {
  if (wanted_ != Sampling::kNone && !has_thread_ && pauses_ == 0) start();
}

void Sampler::start() noexcept {
  // Signals are for the program's threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  ends_ = false;
  tid_ = 0;
  has_thread_ = ::pthread_create(&thread_, &attributes, &run, this) == 0;
  ::pthread_attr_destroy(&attributes);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Sampler::pause() noexcept {
  // Declared first: on return the mutex is unlocked before this waits for the GIL.
  std::optional<WithoutGil> unlocked;
  std::unique_lock lock(mutex_);
  ++pauses_;
  if (!has_thread_) return;
  // Other threads get no turn where the sampler does not wait for one: Python may be ending.
  if (takes_gil_) unlocked.emplace();
  const bool is_first = !ends_;
  ends_ = true;
  changed_.notify_all();
  if (!is_first) {
    changed_.wait(lock, [this] { return !has_thread_; });
    return;
  }
  lock.unlock();
  ::pthread_join(thread_, nullptr);
  lock.lock();
  wait_until_gone(tid_);
  has_thread_ = false;
  changed_.notify_all();
}

bool Sampler::can_sample() noexcept {
  const std::lock_guard lock(mutex_);
  if (!has_thread_ && pauses_ == 0) start();
  return has_thread_ && !ends_;
}

void Sampler::resume() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (--pauses_ > 0) return;
  }
  // In the main thread once it runs Python again: right after the hooks of a fork, Python counts
  // threads, and warns if there are several. From another thread it warns anyway, and the main
  // thread may be in one call for long.
  const auto start = [](void* self) {
    auto& sampler = *static_cast<Sampler*>(self);
    const std::lock_guard lock(sampler.mutex_);
    sampler.start_if_wanted();
    return 0;
  };
  const bool is_main = static_cast<pid_t>(thread_id()) == ::getpid();
  if (!is_main || Py_AddPendingCall(start, this) != 0) start(this);
}

void Sampler::forget() noexcept {
  // The parent's thread may have held the mutex.
  new (&mutex_) std::mutex;
  new (&changed_) std::condition_variable;
  wanted_ = Sampling::kNone;
  has_thread_ = takes_gil_ = ends_ = false;
  pauses_ = 0;
}

void* Sampler::run(void* self) {
  static_cast<Sampler*>(self)->work();
  return nullptr;
}

void Sampler::work() {
  std::unique_lock lock(mutex_);
  tid_ = static_cast<pid_t>(thread_id());
  // By the clock: a sample that waited long for the GIL does not delay the next one. A change of
  // the kind of samples begins a new pause.
  auto due = std::chrono::steady_clock::now();
  nanoseconds pause = kPause;
  while (!ends_) {
    changed_.wait(lock, [this] { return wanted_ != Sampling::kNone || ends_; });
    const Sampling job = wanted_;
    due = std::max(due + pause, std::chrono::steady_clock::now());
    const bool has_changed =
        changed_.wait_until(lock, due, [this, job] { return ends_ || wanted_ != job; });
    if (has_changed) {
      due = std::chrono::steady_clock::now();
      pause = kPause;
      continue;
    }
    takes_gil_ = true;
    lock.unlock();
    pause = sample_once(job);
    lock.lock();
    takes_gil_ = false;
    if (wanted_ != job) pause = kPause;
  }
}

// Returns the time until the next sample.
nanoseconds Sampler::sample_once(Sampling job) {
  Recorder* recorder = Tracer::made();
  if (recorder == nullptr) return kGilInterval;
  recorder->note_gil_wanted(read_tsc());
  const PyGILState_STATE state = PyGILState_Ensure();
  recorder->note_gil_wanted(0);
  if (job == Sampling::kGil) {
    PyGILState_Release(state);
    return kGilInterval;
  }
  const std::int64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  Tracer::get().sample();
  const std::int64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
  PyGILState_Release(state);
  return std::max(kPause, nanoseconds(kLeastIdle * used));
}

}  // namespace oddrank::trace
