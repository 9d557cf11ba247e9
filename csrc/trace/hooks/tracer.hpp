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
#include "trace/record/recorder.hpp"

namespace oddrank::trace {

// Everything needed to make the file of this process, and later that of a forked child.
struct ArmOptions {
  std::vector<std::string> bases;
  std::string job;
  std::size_t bytes = 0;
  ProcessFacts process;
};

// How a version's hook works with the tracer.
struct Hook {
  const char* name = "";
  // Events come only from code that is recorded, so that a thread's list has only such frames.
  bool sparse = false;
  // Asks for the events of a code object that is recorded; nullptr where they come anyway. May fail
  // without an error.
  void (*include)(PyCodeObject* code, Level level) = nullptr;
  // Looks whether another tool has taken the hook and notes it; called now and then.
  void (*look)() = nullptr;
};

// One frame that runs in a thread; under a sparse hook only if it is recorded.
struct Running {
  cpython::Frame frame = nullptr;
  CodeInfo info;
};

// A thread's own state. Only its thread touches it.
class TracedThread {
 public:
  ~TracedThread();

  // The frame on top of this thread's list, which must be the one that runs.
  const Running& top() const noexcept { return running_.back(); }
  bool stands_on(cpython::Frame frame) const noexcept {
    return !running_.empty() && running_.back().frame == frame;
  }
  bool empty() const noexcept { return running_.empty(); }

  // A frame begins (or goes on) on top of its caller; returns what it is.
  CodeInfo enter(cpython::Frame frame, Kind kind) noexcept;
  // The frame on top ends (or stands still); returns what its caller is.
  CodeInfo leave(cpython::Frame frame, Kind kind) noexcept;
  // The frame on top comes to a place: a line or an offset. Inline: it is what happens most.
  void move(cpython::Frame frame, std::uint32_t position, std::uint8_t kind) noexcept {
    if (!stands_on(frame)) [[unlikely]]
      resynchronise(frame);
    if (running_.empty() || pen_ == nullptr) [[unlikely]]
      return;
    const CodeInfo info = running_.back().info;
    if (info.level != Level::kLines) return;
    const Place place = Place::of(info.id, position, kind);
    pen_->move(place);
    pen_->append(place);
  }

  // Builds list and shadow stack anew, up to and with `innermost`.
  void resynchronise(cpython::Frame innermost) noexcept;
  // throw() resumes a frame, and maybe others that it waits for without an event of theirs.
  void enter_by_throw(cpython::Frame frame) noexcept;
  // Whether list and shadow stack are those of the frames from `innermost` outwards: for tests.
  bool is_true_of(cpython::Frame innermost) const noexcept;

 private:
  friend class Tracer;
  void push(cpython::Frame frame, CodeInfo info, Kind kind) noexcept;
  void find_name() noexcept;

  ThreadRecorder* pen_ = nullptr;
  Recorder* owner_ = nullptr;  // of pen_
  // Of the tracer, when this thread was made ready; never, to begin with: 0 is "not recording".
  std::uint64_t generation_ = ~std::uint64_t{0};
  // How many calls are left to look for the thread's name: threading registers it a little late.
  unsigned nameless_ = 0;
  // A frame may have ended without an event: generators hand throw() on to those they wait for.
  bool doubtful_ = false;
  std::vector<Running> running_;
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
  // Where this process records now; nullptr where it does not: before start(), after stop(), and in
  // a forked child up to its first event. From any thread, without the GIL; what it points to is
  // never freed.
  Recorder* recorder() const noexcept { return recorder_.load(std::memory_order_acquire); }
  // The same before anybody has called make().
  static Recorder* current() noexcept {
    return instance == nullptr ? nullptr : instance->recorder();
  }
  const std::string& path() const noexcept { return path_; }
  // Native id of the calling thread, without a system call but for the first.
  static std::uint32_t tid() noexcept { return this_tid != 0 ? this_tid : ask_tid(); }
  // oddrank.step(): a good moment to look whether the hook is still ours.
  void look() noexcept {
    if (hook_.look != nullptr) hook_.look();
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
  Recorder* made_ = nullptr;  // by this process; leaked: threads may write while the process ends
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
  Hook hook_;
  CodeTable codes_;
  std::map<std::string, std::uint64_t, std::less<>> hashes_;  // of source files
};

}  // namespace oddrank::trace
