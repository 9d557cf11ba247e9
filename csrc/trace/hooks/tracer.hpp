// The tracer of this process: its Recorder, its Filter and each thread's state. A hook into CPython
// calls it for each event: PyEval_SetTrace (cpython/settrace.cpp) up to 3.11, sys.monitoring
// (cpython/monitoring.cpp) from 3.12 on.
#pragma once

#include <Python.h>
#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/cpython/frames.hpp"
#include "trace/hooks/filter.hpp"
#include "trace/write/budget.hpp"
#include "trace/write/recorder.hpp"

namespace oddrank::trace {

// The hook of this version of Python. Call all functions with the GIL.
namespace hook {

extern const char* const kName;
extern const EventCosts kCosts;  // of its events
// Asks for the events of a recorded code object, where they do not come anyway. Ignores errors.
void include(PyCodeObject* code, Level level);
// Whether the interpreter runs all code slower while it gives events, so that code rests.
extern const bool kMayRest;
// Takes the events of a thread away, or lets them come again, where they come by its slots.
void set_quiet(PyThreadState* state, bool quiet) noexcept;
// Tells a thread's slots how its innermost listed frame is recorded now.
void settle(PyThreadState* state, Level level) noexcept;
// Checks whether another tool has taken the hook, and notes it. Called every 64 steps.
void look();
// Hooks all running threads, and tells the budget to which level code can go down. Call after
// Tracer::start(). Returns false with a Python error.
bool arm();
// Removes the hook. Call before Tracer::stop().
void disarm();
// Returns a new reference to a callable for threading.settrace(): it hooks the thread that calls
// it, also by sys.settrace(sys.gettrace()). nullptr if new threads need no hook.
PyObject* trace_object();

}  // namespace hook

// Only recorded code gives events: a thread's list holds only recorded frames.
constexpr bool kSparse = cpython::kHasMonitoring;

// A running frame.
struct Running {
  cpython::Frame frame = nullptr;
  CodeInfo info;
};

// A traced thread: the list of its frames, and the writer that shows them to readers. Only its
// thread uses it, and others that have the GIL and the tracer's mutex.
class TracedThread {
 public:
  ~TracedThread();

  // The innermost listed frame. The list must not be empty.
  const Running& top() const noexcept { return running_.back(); }
  bool stands_on(cpython::Frame frame) const noexcept {
    return !running_.empty() && running_.back().frame == frame;
  }
  bool empty() const noexcept { return running_.empty(); }

  // Pushes a frame that begins or resumes. Returns its CodeInfo.
  CodeInfo enter(cpython::Frame frame, Kind kind) noexcept;
  // Pops a frame that ends or is suspended. Returns its caller's CodeInfo.
  CodeInfo leave(cpython::Frame frame, Kind kind) noexcept;
  // Counts down to the next review of the budget. Call it once per event, at its end.
  bool is_due() noexcept { return --left_ == 0; }
  // Moves the top frame to a position: a line or, with kIsOffset, an offset. Inline: the most
  // frequent event.
  void move(cpython::Frame frame, std::uint32_t position, std::uint8_t flag) noexcept {
    if (!stands_on(frame) || lines_lost_ || shows_more_) [[unlikely]]
      catch_up(frame);
    if (running_.empty() || pen_ == nullptr) [[unlikely]]
      return;
    const CodeInfo info = running_.back().info;
    if (info.level != Level::kLines) return;
    const Place place = Place::of(info.id, position, Kind::kLine, flag);
    pen_->move(place);
    pen_->append(place);
    count_line(info.id);
  }

  // Rebuilds list and shadow stack from the frames up to and including `innermost`, and notes that
  // events are missing.
  void resynchronise(cpython::Frame innermost) noexcept;
  // Shows readers the frames up to and including `innermost` if code among them is recorded less
  // closely than asked for: with its present lines, also what the list does not have.
  void sample(cpython::Frame innermost, std::uint64_t tsc) noexcept;
  // Frames within `frame`, which imports a module, give no events from now on: samples show them.
  void begin_import(cpython::Frame frame) noexcept;
  // The frame within which there are no events; nullptr: there are.
  cpython::Frame imports() const noexcept { return imports_; }
  // There are events again; the innermost frame is `frame`.
  void end_import(cpython::Frame frame) noexcept;
  // All code gives events again, after a rest.
  void wake(cpython::Frame innermost) noexcept;
  // Another tool takes this thread's line events: removes the positions from the shadow stack until
  // resynchronise() restores them.
  void lose_lines() noexcept;
  bool lines_lost() const noexcept { return lines_lost_; }
  // throw() resumes a frame, and possibly frames that it awaits, which send no event.
  void enter_by_throw(cpython::Frame frame) noexcept;
  // Whether list and shadow stack match the frames from `innermost` outwards, with their levels.
  bool is_true_of(cpython::Frame innermost) const noexcept;

 private:
  friend class Tracer;
  // Where only recorded code gives events: whether the nearest recorded caller is the top of the
  // list. False if frames ended without an event (delegated throw()) or a greenlet was switched to.
  bool reaches_top(cpython::Frame caller) const noexcept;
  void push(cpython::Frame frame, CodeInfo info, Kind kind) noexcept;
  void catch_up(cpython::Frame frame) noexcept;
  // The same as resynchronise(), without the note.
  void rebuild(cpython::Frame innermost) noexcept;
  // Whether the list matches the frames from `innermost` outwards, with their levels.
  bool lists(cpython::Frame innermost) const noexcept;
  void find_name() noexcept;
  void set_import(cpython::Frame frame) noexcept;
  static void count_line(std::uint32_t code) noexcept;

  ThreadRecorder* pen_ = nullptr;
  Recorder* owner_ = nullptr;  // of pen_
  // Tracer generation at the last prepare(). The initial value equals none; 0: not recording.
  std::uint64_t generation_ = ~std::uint64_t{0};
  // Calls left in which to look for the thread's name: threading registers it a little late.
  unsigned nameless_ = 0;
  std::uint32_t left_ = 0;       // events until the next review of the budget
  std::uint64_t cpu_ns_ = 0;     // this thread's CPU time at the last one; 0: unknown
  unsigned long python_id_ = 0;  // its threading ident, by which a PyThreadState names it
  bool lines_lost_ = false;
  bool shows_more_ = false;  // the shadow stack is a sample's: the next event shows the list again
  bool doubtful_ = false;    // frames may run that are not in the list
  cpython::Frame imports_ = nullptr;  // as imports() says
  std::vector<Running> running_;
};

// Work of the sampling thread: it takes the GIL once a second, so that the record shows if a
// thread keeps it; or 20 times a second, and has the stacks of all threads read, while code runs
// too often to be recorded as closely as asked for.
enum class Sampling { kNone, kGil, kStacks };

// The thread that samples. Call all functions with the GIL, but forget().
class Sampler {
 public:
  // Does this from now on. Without room for a thread it does nothing.
  void want(Sampling wanted) noexcept;
  // Ends the thread and waits until it is gone, without the GIL if it takes that: before fork(),
  // else Python warns of threads, and before Python finalizes, when no other thread may ask for it.
  void pause() noexcept;
  // Allows want() to start a thread again, and starts it soon if it has something to do.
  void resume() noexcept;
  // Whether it takes the samples that are wanted: not while it is paused.
  bool can_sample() noexcept;
  // In a forked child, which has no such thread.
  void forget() noexcept;

 private:
  static void* run(void* self);
  void work();
  std::chrono::nanoseconds sample_once(Sampling job);
  void start() noexcept;
  void start_if_wanted() noexcept;  // call with the mutex

  std::mutex mutex_;  // guards all; never held while waiting for the GIL
  std::condition_variable changed_;
  Sampling wanted_ = Sampling::kNone;
  bool has_thread_ = false;
  bool takes_gil_ = false;
  bool ends_ = false;
  int pauses_ = 0;  // pause() calls without their resume()
  pthread_t thread_{};
  pid_t tid_ = 0;
};

// Everything needed to make this process's file, and later a forked child's.
struct ArmOptions {
  std::vector<std::string> bases;
  std::string job;
  std::size_t bytes = 0;
  double budget = 0;  // share of CPU time; 0: no limit
  Process process;
};

class Tracer {
 public:
  // Makes the tracer at the first call, with the GIL. Never destroyed: threads record to the end.
  static Tracer& make();
  // The same, faster. Call only after make().
  static Tracer& get() noexcept { return *instance; }

  // Makes this process's file, or continues it after stop(), and records from now on. The caller
  // arms the hook. Throws Error.
  void start(ArmOptions options, Filter filter);
  // Stops recording; the record stays. The caller has disarmed the hook.
  void stop() noexcept;
  bool running() const noexcept { return recorder() != nullptr; }
  // The current recorder; nullptr before start(), after stop(), and in a forked child until its
  // first event. Call from any thread, without the GIL; the recorder is never freed.
  Recorder* recorder() const noexcept { return recorder_.load(std::memory_order_acquire); }
  // The same; works before make() too.
  static Recorder* current() noexcept {
    return instance == nullptr ? nullptr : instance->recorder();
  }
  const std::string& path() const noexcept { return path_; }
  // This process's recorder, also after stop(); nullptr if it has none. For notes at its end.
  static Recorder* made() noexcept {
    return instance == nullptr ? nullptr : instance->made_.load(std::memory_order_acquire);
  }
  // Notes that `tool` has taken the hook; nullptr: it is ours again. Writes only a change.
  void note_displaced(PyObject* tool) noexcept;
  bool displaced() const noexcept { return displaced_; }

  // Returns this thread's state, ready to record; nullptr if not recording or out of memory.
  TracedThread* here() noexcept {
    TracedThread* thread = this_thread;
    return thread != nullptr && thread->generation_ == generation_ ? thread : prepare();
  }
  // Returns the id and level of `frame`'s code.
  CodeInfo info_of(cpython::Frame frame) noexcept {
    const CodeInfo* known = codes_.find(cpython::code_of(frame));
    return known != nullptr ? *known : decide(frame);
  }
  // Decides whether code is recorded less closely, or as closely as wanted again. Called by each
  // thread after every few thousand events; its innermost frame after the event is `innermost`.
  void review(TracedThread& thread, cpython::Frame innermost) noexcept;
  // Whether a module's own code is recorded, as it is imported: what an installed one does then is
  // sampled, unless there is no budget.
  bool records_import(std::string_view module, const PyCodeObject* code) const noexcept;
  Budget& budget() noexcept { return budget_; }
  bool knows(cpython::Frame frame) const noexcept {
    return codes_.find(cpython::code_of(frame)) != nullptr;
  }
  // Whether no code gives events: samples show all.
  bool rests() const noexcept { return budget_.rests(); }
  // Lets all code give events again if none does.
  void wake() noexcept;
  // Samples all threads. Called by the sampler, with the GIL.
  void sample() noexcept;
  Sampler& sampler() noexcept { return sampler_; }
  // For tests: compare the stack with the frames after every event, and count the differences.
  void check_every_event(bool on) noexcept { checks_ = on; }
  void check(const TracedThread& thread, cpython::Frame innermost) noexcept {
    if (!checks_) [[likely]]
      return;
    ++events_checked_;
    wrong_stacks_ += thread.is_true_of(innermost) ? 0 : 1;
  }
  std::pair<std::uint64_t, std::uint64_t> check_result() const noexcept {
    return {events_checked_, wrong_stacks_};
  }

  // Removes a destroyed code object: its address will be reused.
  void forget(const PyCodeObject* code) noexcept { codes_.erase(code); }
  CodeTable& codes() noexcept { return codes_; }

 private:
  friend class TracedThread;
  Tracer() = default;
  static void after_fork() noexcept;
  TracedThread* prepare() noexcept;
  // Returns the key whose value, a TracedThread, is deleted at its thread's end; empty if the
  // process has all keys that it may have. start() makes it.
  static std::optional<pthread_key_t> key_of_threads() noexcept;
  bool open_in_child() noexcept;
  CodeInfo decide(cpython::Frame frame) noexcept;
  Sampling sampling() const noexcept {
    if (!running()) return Sampling::kNone;
    return budget_.lowers_any() || importing_ > 0 || rests() ? Sampling::kStacks : Sampling::kGil;
  }
  void apply(std::span<const LevelChange> changes, TracedThread& thread,
             cpython::Frame innermost) noexcept;
  void rest(TracedThread& thread, cpython::Frame innermost) noexcept;
  // Calls `see(thread, state, innermost frame)` for each traced thread that is ready to record, but
  // not one whose slot another tool has, unless all code rests: that shows no positions. It has the
  // mutex.
  template <class See>
  void each_traced(See see) noexcept;
  void change_codes() noexcept;
  void raise_all() noexcept;
  void remove(TracedThread& thread) noexcept;
  void open(const ArmOptions& options);

  static Tracer* instance;
  // Initial-exec: read without a call. It takes 8 bytes of the space that glibc reserves for
  // libraries loaded late.
  static __thread TracedThread* this_thread __attribute__((tls_model("initial-exec")));

  std::atomic<Recorder*> recorder_ = nullptr;
  // Made by this process; leaked: threads may write while the process ends.
  std::atomic<Recorder*> made_ = nullptr;
  // A new number after each start and in each child; 0: not recording.
  std::uint64_t generation_ = 0;
  std::uint64_t generations_ = 0;
  bool forked_ = false;
  bool checks_ = false;
  bool displaced_ = false;
  int importing_ = 0;      // threads in an import that gives no events
  bool applying_ = false;  // a review's changes; Python that runs meanwhile must not wait for it
  std::uint64_t events_checked_ = 0;
  std::uint64_t wrong_stacks_ = 0;
  std::string path_;
  ArmOptions options_;
  Filter filter_{{}, {}};
  CodeTable codes_;
  Budget budget_;
  Sampler sampler_;
  std::mutex mutex_;  // guards the next two: threads end without the GIL
  std::vector<TracedThread*> threads_;
  std::uint64_t ended_cpu_ns_ = 0;
};

inline void TracedThread::count_line(std::uint32_t code) noexcept {
  Tracer::get().budget().count_line(code);
}

// Returns a callable that calls `function` with one argument, without events up to 3.11: they cost
// more than our own short functions. From 3.12 on code that is not recorded gives none. A new
// reference; nullptr with a Python error.
PyObject* unseen(PyObject* function);

// Returns a callable for importlib's _call_with_frames_removed(), given that: the code of installed
// modules runs without events while they are imported, unless there is no budget. A new reference;
// nullptr with a Python error.
PyObject* quiet_imports(PyObject* function);

}  // namespace oddrank::trace
