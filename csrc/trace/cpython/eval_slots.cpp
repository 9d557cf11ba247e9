// Takes and releases the threads' trace and profile slots (PyEval_SetTrace, PyEval_SetProfile), and
// notices when another tool takes them.
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "trace/hooks/hook.hpp"
#include "trace/hooks/settrace.hpp"
#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

template <class Act>
void each_thread(Act act) {
  PyThreadState* state = PyInterpreterState_ThreadHead(PyThreadState_Get()->interp);
  for (; state != nullptr; state = PyThreadState_Next(state)) act(state);
}

// Set while oddrank changes slots itself: CPython raises the same audit event for that.
bool we_are_at_it = false;

// A tool sets this thread's trace function: treat the lines as lost until the slot is ours again.
void lose_lines_here() noexcept {
  if (we_are_at_it || !Tracer::get().armed_with(settrace_hook())) return;
  const PyThreadState* state = PyThreadState_Get();
  if (state->c_traceobj == nullptr || state->c_traceobj != slot_object()) return;
  if (TracedThread* thread = Tracer::get().here()) thread->lose_lines();
}

#if PY_VERSION_HEX < 0x030C0000

// Takes a thread's slots that are free or hold our object (a tool may have restored it). Leaves
// another tool's slots alone: without the trace slot there are no lines, without both no events.
bool take(PyThreadState* state, PyObject* object) {
  const bool may_profile = state->c_profileobj == nullptr ||
                           (state->c_profileobj == object && state->c_profilefunc != &on_profile);
  if (may_profile && _PyEval_SetProfile(state, &on_profile, object) < 0) return false;
  const bool may_trace = state->c_traceobj == nullptr || state->c_traceobj == object;
  return !may_trace || _PyEval_SetTrace(state, &on_trace, object) == 0;
}

void release(PyThreadState* state) {
  if (state->c_traceobj == slot_object() && _PyEval_SetTrace(state, nullptr, nullptr) < 0) {
    PyErr_Clear();
  }
  if (state->c_profilefunc == &on_profile && _PyEval_SetProfile(state, nullptr, nullptr) < 0) {
    PyErr_Clear();
  }
}

#else

bool is_others(const PyThreadState* state) noexcept {
  const PyObject* object = state->c_traceobj;
  return object != nullptr ? object != slot_object()
                           : state->c_tracefunc != nullptr && state->c_tracefunc != &on_trace;
}

bool take(PyThreadState* state, PyObject* object) {
  // `state` must be the calling thread's: the API of 3.13 sets no other thread's slot.
  if (!is_others(state)) PyEval_SetTrace(&on_trace, object);
  return true;
}

// Another tool's function in a thread, saved while take_all() sets all threads.
struct Others {
  PyThreadState* state;
  Py_tracefunc function;
  PyObject* object;
};

// Sets our function in all threads, then restores the slots of other tools. CPython counts traced
// threads, so only its own functions may fill a slot.
bool take_all(PyObject* object) {
  std::vector<Others> others;
  try {
    each_thread([&others](PyThreadState* state) {
      if (!is_others(state)) return;
      others.push_back({state, state->c_tracefunc, state->c_traceobj});
      Py_XINCREF(state->c_traceobj);
    });
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return false;  // leaks the references taken so far
  }
  PyEval_SetTraceAllThreads(&on_trace, object);
  each_thread([&others](PyThreadState* state) {
    for (const Others& kept : others) {
      if (kept.state != state) continue;
      state->c_tracefunc = kept.function;
      PyObject* ours = std::exchange(state->c_traceobj, kept.object);
      Py_XDECREF(ours);
    }
  });
  return true;
}

bool a_look_is_due = false;

// Pending call, runs in the main thread: a thread whose slot was taken gets no events to notice it.
int look_at_all_threads(void* /*unused*/) {
  a_look_is_due = false;
  if (!Tracer::get().armed_with(settrace_hook())) return 0;
  PyObject* tool = PyThreadState_Get()->c_traceobj == slot_object() ? nullptr : Py_None;
  each_thread([&tool](PyThreadState* state) {
    if (is_others(state)) tool = state->c_traceobj != nullptr ? state->c_traceobj : Py_None;
  });
  Tracer::get().note_displaced(tool);
  return 0;
}

#endif

}  // namespace

bool is_ours(PyThreadState* state) noexcept {
  const bool ours = state->c_traceobj == slot_object();
  if (ours == Tracer::get().displaced()) [[unlikely]] {
    PyObject* tool = state->c_traceobj == nullptr ? Py_None : state->c_traceobj;
    Tracer::get().note_displaced(ours ? nullptr : tool);
  }
#if PY_VERSION_HEX < 0x030C0000
  // Another tool took the profile slot while our trace function was off: switch it on for good.
  if (ours && state->c_profilefunc != &on_profile) [[unlikely]]
    state->c_tracefunc = &on_trace;
#endif
  return ours;
}

bool take_this_thread() {
  PyThreadState* state = PyThreadState_Get();
  PyObject* object = slot_object();
  if (object == nullptr || !take(state, object)) return false;
  is_ours(state);
  TracedThread* thread = Tracer::get().here();
  if (thread != nullptr) thread->resynchronise(cpython::innermost(state));
  return true;
}

#if PY_VERSION_HEX < 0x030C0000

bool take_slots() {
  PyObject* object = slot_object();
  if (object == nullptr) return false;
  const PyThreadState* self = PyThreadState_Get();
  each_thread([self, object](PyThreadState* state) {
    if (state != self && !take(state, object)) PyErr_Clear();
  });
  return take_this_thread();
}

void release_slots() {
  we_are_at_it = true;
  each_thread(&release);
  we_are_at_it = false;
}

void release_this_thread() {}

// Called before a tool takes the trace slot or a profiler the profile slot. Our profile function
// switches our trace function on and off: once it is gone, the trace function must stay on.
int on_audit(const char* event, PyObject* /*args*/, void* /*unused*/) {
  if (std::strcmp(event, "sys.settrace") == 0) lose_lines_here();
  if (std::strcmp(event, "sys.setprofile") != 0) return 0;
  PyThreadState* state = PyThreadState_Get();
  if (state->c_traceobj != nullptr && state->c_traceobj == slot_object()) {
    state->c_tracefunc = &on_trace;
  }
  return 0;
}

#else

bool take_slots() {
  PyObject* object = slot_object();
  if (object == nullptr) return false;
  we_are_at_it = true;
  const bool taken = take_all(object) && take_this_thread();
  we_are_at_it = false;
  return taken;
}

// If another tool has a thread, releases only this thread's slot; others at their next event.
void release_slots() {
  bool others = false;
  each_thread([&others](PyThreadState* state) { others = others || is_others(state); });
  we_are_at_it = true;
  if (!others) {
    PyEval_SetTraceAllThreads(nullptr, nullptr);
  } else if (PyThreadState_Get()->c_traceobj == slot_object()) {
    PyEval_SetTrace(nullptr, nullptr);
  }
  we_are_at_it = false;
}

void release_this_thread() {
  const bool armed = Tracer::get().armed_with(settrace_hook());
  if (!armed && PyThreadState_Get()->c_traceobj == slot_object()) {
    PyEval_SetTrace(nullptr, nullptr);
  }
}

// Called before sys.settrace() or PyEval_SetTrace(): lets the main thread check all slots after it.
int on_audit(const char* event, PyObject* /*args*/, void* /*unused*/) {
  if (std::strcmp(event, "sys.settrace") != 0) return 0;
  lose_lines_here();
  if (a_look_is_due || we_are_at_it) return 0;
  if (!Tracer::get().armed_with(settrace_hook())) return 0;
  a_look_is_due = Py_AddPendingCall(&look_at_all_threads, nullptr) == 0;
  return 0;
}

#endif

}  // namespace oddrank::trace
