// The tracer of this process: who records (one Recorder), what (one Filter), and each thread's
// state. Hooks call it; it knows frames and code objects, not events of a version of CPython.
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

#include "trace/hooks/code_ids.hpp"
#include "trace/hooks/cpython.hpp"
#include "trace/hooks/filter.hpp"
#include "trace/hooks/hook.hpp"
#include "trace/hooks/traced_thread.hpp"
#include "trace/record/recorder.hpp"

namespace oddrank::trace {

// Everything needed to make the file of this process, and later that of a forked child.
struct ArmOptions {
  std::vector<std::string> bases;
  std::string job;
  std::size_t bytes = 0;
  ProcessFacts process;
};

class Tracer {
 public:
  // Made once and never destroyed: threads may record while the process ends. Holds the GIL.
  static Tracer& make();
  // The same on the hot path: only after make().
  static Tracer& get() noexcept { return *instance; }

  // Makes this process's file, or goes on with it after a stop(), and becomes ready; the hooks are
  // the caller's. Throws Error.
  void start(ArmOptions options, Filter filter, const Hook& hook);
  // Hooks are gone: what was recorded stays.
  void stop() noexcept;
  bool running() const noexcept { return recorder() != nullptr; }
  const Hook& hook() const noexcept { return *hook_; }  // of the last start()
  bool armed_with(const Hook& hook) const noexcept { return running() && hook_ == &hook; }
  // Where this process records now; nullptr where it does not: before start(), after stop(), and in
  // a forked child up to its first event. From any thread, without the GIL; what it points to is
  // never freed.
  Recorder* recorder() const noexcept { return recorder_.load(std::memory_order_acquire); }
  // The same before anybody has called make().
  static Recorder* current() noexcept {
    return instance == nullptr ? nullptr : instance->recorder();
  }
  const std::string& path() const noexcept { return path_; }
  // This process's record, also after stop(); nullptr where it has none. For its last words.
  static Recorder* made() noexcept {
    return instance == nullptr ? nullptr : instance->made_.load(std::memory_order_acquire);
  }
  // Native id of the calling thread, without a system call but for the first.
  static std::uint32_t tid() noexcept { return this_tid != 0 ? this_tid : ask_tid(); }
  // oddrank.step(): a good moment to look whether the hook is still ours.
  void look() noexcept {
    if (hook_->look != nullptr) hook_->look();
  }
  // Another tool has the hook, or has it no more (nullptr). Only a change is written.
  void note_displaced(PyObject* tool) noexcept;
  bool displaced() const noexcept { return displaced_; }

  // This thread's state, ready to record; nullptr where nothing can be recorded (no room).
  TracedThread* here() noexcept {
    TracedThread* thread = this_thread;
    return thread != nullptr && thread->generation_ == generation_ ? thread : prepare();
  }
  // What is recorded of `frame`'s code.
  CodeInfo info_of(cpython::Frame frame) noexcept {
    const CodeInfo* known = codes_.find(frame->code);
    return known != nullptr ? *known : decide(frame);
  }
  // For tests: after every event the stack is compared with the frames; how often it was not
  // theirs.
  void check_every_event(bool on) noexcept { checks_ = on; }
  bool checks() const noexcept { return checks_; }
  void checked(bool right) noexcept {
    ++events_checked_;
    wrong_stacks_ += right ? 0 : 1;
  }
  std::pair<std::uint64_t, std::uint64_t> check_result() const noexcept {
    return {events_checked_, wrong_stacks_};
  }

  // Code objects that are destroyed lose their entry: their address will be another's.
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
  std::uint64_t hash_of(std::string_view file) noexcept;

  static Tracer* instance;
  // Found without a call: eight bytes of the room that glibc keeps for libraries loaded late.
  static __thread TracedThread* this_thread __attribute__((tls_model("initial-exec")));

  static __thread std::uint32_t this_tid __attribute__((tls_model("initial-exec")));

  std::atomic<Recorder*> recorder_ = nullptr;
  // By this process; leaked: threads may write while the process ends.
  std::atomic<Recorder*> made_ = nullptr;
  // Another one after each start, stop and fork; 0: not recording.
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
  std::map<std::string, std::uint64_t, std::less<>> hashes_;  // of source files
};

}  // namespace oddrank::trace
