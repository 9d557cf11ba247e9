// The tracer of this process: its Recorder, its Filter and each thread's state. A hook into CPython
// calls it for each event: PyEval_SetTrace (settrace.cpp), the default up to 3.11, or
// sys.monitoring (monitoring.cpp), the default from 3.12 on.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/cpython/frames.hpp"
#include "trace/hooks/filter.hpp"
#include "trace/hooks/traced_thread.hpp"
#include "trace/write/recorder.hpp"

namespace oddrank::trace {

// What the tracer needs of a hook. Call all functions with the GIL.
struct Hook {
  const char* name = "";
  // Only recorded code gives events: a thread's list holds only recorded frames.
  bool sparse = false;
  // Asks for the events of a recorded code object; nullptr if they come anyway. Errors are ignored.
  void (*include)(PyCodeObject* code, Level level) = nullptr;
  // Checks whether another tool has taken the hook, and notes it. Called every 64 steps.
  void (*look)() = nullptr;
  // Hooks all running threads. Call after Tracer::start(). Returns false with a Python error.
  bool (*arm)() = nullptr;
  // Removes the hook. Call before Tracer::stop().
  void (*disarm)() = nullptr;
  // Returns a new reference to a callable for threading.settrace(): it hooks the thread that calls
  // it, also by sys.settrace(sys.gettrace()). nullptr if new threads need no hook.
  PyObject* (*trace_object)() = nullptr;
};
inline constexpr Hook kNoHook{};

const Hook& settrace_hook() noexcept;
const Hook& monitoring_hook() noexcept;

// Returns the hook with that name; this version's default if empty; nullptr if there is none.
inline const Hook* hook_named(std::string_view name) noexcept {
  const bool is_default = name.empty();
  if (cpython::kHasMonitoring && (is_default || name == monitoring_hook().name)) {
    return &monitoring_hook();
  }
  return is_default || name == settrace_hook().name ? &settrace_hook() : nullptr;
}

// Everything needed to make this process's file, and later a forked child's.
struct ArmOptions {
  std::vector<std::string> bases;
  std::string job;
  std::size_t bytes = 0;
  ProcessFacts process;
};

class Tracer {
 public:
  // Makes the tracer at the first call, with the GIL. Never destroyed: threads record to the end.
  static Tracer& make();
  // The same, faster. Call only after make().
  static Tracer& get() noexcept { return *instance; }

  // Makes this process's file, or continues it after stop(), and records from now on. The caller
  // arms the hook. Throws Error.
  void start(ArmOptions options, Filter filter, const Hook& hook);
  // Stops recording; the record stays. The caller has disarmed the hook.
  void stop() noexcept;
  bool running() const noexcept { return recorder() != nullptr; }
  const Hook& hook() const noexcept { return *hook_; }  // of the last start()
  bool armed_with(const Hook& hook) const noexcept { return running() && hook_ == &hook; }
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
  // Native id of the calling thread. Only a thread's first call makes a system call.
  static std::uint32_t tid() noexcept { return this_tid != 0 ? this_tid : ask_tid(); }
  // Checks whether the hook is still ours. Called by oddrank.step().
  void look() noexcept {
    if (hook_->look != nullptr) hook_->look();
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
  const CodeTable& codes() const noexcept { return codes_; }

 private:
  friend class TracedThread;
  Tracer() = default;
  static void after_fork() noexcept;
  static std::uint32_t ask_tid() noexcept;
  TracedThread* prepare() noexcept;
  bool open_in_child() noexcept;
  CodeInfo decide(cpython::Frame frame) noexcept;
  void open(const ArmOptions& options);
  // Hashes a source file that Python has just read itself; 0 if it can't be read.
  std::uint64_t hash_now(std::string_view file) noexcept;
  // Returns the hash made earlier; 0 if there is none.
  std::uint64_t known_hash(std::string_view file) const noexcept;
  void hash_imported() noexcept;

  static Tracer* instance;
  // Initial-exec: read without a call. The two take 12 bytes of the space that glibc reserves for
  // libraries loaded late.
  static __thread TracedThread* this_thread __attribute__((tls_model("initial-exec")));

  static __thread std::uint32_t this_tid __attribute__((tls_model("initial-exec")));

  std::atomic<Recorder*> recorder_ = nullptr;
  // Made by this process; leaked: threads may write while the process ends.
  std::atomic<Recorder*> made_ = nullptr;
  // A new number after each start and in each child; 0: not recording.
  std::uint64_t generation_ = 0;
  std::uint64_t generations_ = 0;
  bool forked_ = false;
  bool checks_ = false;
  bool displaced_ = false;
  std::uint64_t events_checked_ = 0;
  std::uint64_t wrong_stacks_ = 0;
  std::string path_;
  ArmOptions options_;
  Filter filter_{{}, {}};
  const Hook* hook_ = &kNoHook;
  CodeTable codes_;
  // Hashes by source file. Files are read only when their module runs and by start(): later they
  // may have changed, and a file server that hangs would stop this rank.
  std::map<std::string, std::uint64_t, std::less<>> hashes_;
};

}  // namespace oddrank::trace
