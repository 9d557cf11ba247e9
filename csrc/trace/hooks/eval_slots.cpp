// The slots of threads in which PyEval_SetTrace and PyEval_SetProfile keep a function and an
// object: taking them, giving them back, and noticing who else has them.
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "trace/hooks/eval_trace.hpp"
#include "trace/hooks/hook.hpp"
#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

template <class Act>
void each_thread(Act act) {
  PyThreadState* state = PyInterpreterState_ThreadHead(PyThreadState_Get()->interp);
  for (; state != nullptr; state = PyThreadState_Next(state)) act(state);
}

#if PY_VERSION_HEX < 0x030C0000

// Takes the slots of a thread that are free, or hold our object as somebody has put it back. What
// is another tool's stays so: with its trace function there are no lines, with both taken nothing.
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
  // For the calling thread alone, which `state` is: there is nothing else in the API of 3.13.
  if (!is_others(state)) PyEval_SetTrace(&on_trace, object);
  return true;
}

// Another tool's function in some thread, kept while all threads are given ours.
struct Others {
  PyThreadState* state;
  Py_tracefunc function;
  PyObject* object;
};

// CPython counts the threads that are traced, so the slots can't be filled by hand: all of them are
// ours for a moment, and what was another tool's is put back.
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
    return false;  // what is kept so far is leaked: nothing else works now either
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
bool we_are_at_it = false;

// Some thread's slot has changed hands, its own thread may not look: it gets no events.
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
  // Another tool took the profile slot while lines were not wanted: nobody would want them again.
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

void release_slots() { each_thread(&release); }

void release_this_thread() {}

// Before a profiler takes the profile slot: with it goes who would want lines again.
int on_audit(const char* event, PyObject* /*args*/, void* /*unused*/) {
  if (std::strcmp(event, "sys.setprofile") != 0) return 0;
  PyThreadState* state = _PyThreadState_UncheckedGet();
  if (state != nullptr && state->c_traceobj != nullptr && state->c_traceobj == slot_object()) {
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

// Where another tool has a thread, each of ours is given back by itself: at its next event, and
// this one now.
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

// Before somebody calls sys.settrace(), or PyEval_SetTrace() from C: whoever he is, he is looked at
// a little later, by the main thread.
int on_audit(const char* event, PyObject* /*args*/, void* /*unused*/) {
  if (std::strcmp(event, "sys.settrace") != 0 || a_look_is_due || we_are_at_it) return 0;
  if (!Tracer::get().armed_with(settrace_hook())) return 0;
  a_look_is_due = Py_AddPendingCall(&look_at_all_threads, nullptr) == 0;
  return 0;
}

#endif

}  // namespace oddrank::trace
