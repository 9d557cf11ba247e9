// The trace and profile slots of a thread (PyEval_SetTrace, PyEval_SetProfile) in each version of
// CPython: takes and releases them, notices when another tool takes them, and tells their events
// apart.
#include <opcode.h>

#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

// Set while oddrank changes slots itself: CPython raises the same audit event for that.
bool we_are_at_it = false;

// A tool sets this thread's trace function: treat the lines as lost until the slot is ours again.
void lose_lines_here() noexcept {
  if (we_are_at_it || !Tracer::get().armed_with(settrace_hook())) return;
  const PyThreadState* state = PyThreadState_Get();
  if (state->c_traceobj == nullptr || state->c_traceobj != slot_object()) return;
  if (TracedThread* thread = Tracer::get().here()) thread->lose_lines();
}

}  // namespace

#if PY_VERSION_HEX < 0x030C0000

namespace {

constexpr int kGenerators = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;

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

// While a thread gives events, CPython also runs its code about half as fast.
PyObject* call_unseen(PyObject* function, PyObject* argument) {
  PyThreadState* state = PyThreadState_Get();
#if PY_VERSION_HEX < 0x030B0000
  ++state->tracing;
  state->cframe->use_tracing = 0;
  PyObject* result = PyObject_CallOneArg(function, argument);
  state->cframe->use_tracing =
      static_cast<int>(state->c_tracefunc != nullptr || state->c_profilefunc != nullptr);
  --state->tracing;
#else
  PyThreadState_EnterTracing(state);
  PyObject* result = PyObject_CallOneArg(function, argument);
  PyThreadState_LeaveTracing(state);
#endif
  return result;
}

std::uint8_t opcode_at(cpython::Frame frame, std::uint32_t offset) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  return static_cast<std::uint8_t>(PyBytes_AS_STRING(cpython::code_of(frame)->co_code)[offset]);
#else
  return static_cast<std::uint8_t>(cpython::code_of(frame)->co_code_adaptive[offset]);
#endif
}

}  // namespace

PyObject* unseen(PyObject* function) {
  static PyMethodDef method{"unseen", &call_unseen, METH_O, nullptr};
  return PyCFunction_New(&method, function);
}

bool take_slots() {
  PyObject* object = slot_object();
  if (object == nullptr) return false;
  const PyThreadState* self = PyThreadState_Get();
  cpython::each_thread([self, object](PyThreadState* state) {
    if (state != self && !take(state, object)) PyErr_Clear();
  });
  return take_this_thread();
}

void release_slots() {
  we_are_at_it = true;
  cpython::each_thread(&release);
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

Kind how_it_begins(cpython::Frame frame) noexcept {
  if ((cpython::code_of(frame)->co_flags & kGenerators) == 0) return Kind::kCall;
#if PY_VERSION_HEX < 0x030B0000
  return reinterpret_cast<const PyFrameObject*>(frame)->f_lasti >= 0 ? Kind::kResume : Kind::kCall;
#else
  const std::uint32_t offset = cpython::offset_of(frame);
  const std::uint8_t opcode = opcode_at(frame, offset);
  const bool resumes = (opcode == RESUME || opcode == RESUME_QUICK) &&
                       (cpython::code_of(frame)->co_code_adaptive[offset + 1] & 3) != 0;
  return resumes ? Kind::kResume : Kind::kCall;
#endif
}

Kind how_it_ends(cpython::Frame frame, const PyObject* result) noexcept {
  if (result == nullptr) return Kind::kUnwind;
  if ((cpython::code_of(frame)->co_flags & kGenerators) == 0) return Kind::kReturn;
  const std::uint8_t opcode = opcode_at(frame, cpython::offset_of(frame));
#if PY_VERSION_HEX < 0x030B0000
  return opcode == YIELD_VALUE || opcode == YIELD_FROM ? Kind::kYield : Kind::kReturn;
#else
  return opcode == YIELD_VALUE ? Kind::kYield : Kind::kReturn;
#endif
}

#else  // 3.12 and later

PyObject* unseen(PyObject* function) { return Py_NewRef(function); }

namespace {

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
    cpython::each_thread([&others](PyThreadState* state) {
      if (!is_others(state)) return;
      others.push_back({state, state->c_tracefunc, state->c_traceobj});
      Py_XINCREF(state->c_traceobj);
    });
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return false;  // leaks the references taken so far
  }
  PyEval_SetTraceAllThreads(&on_trace, object);
  cpython::each_thread([&others](PyThreadState* state) {
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
  cpython::each_thread([&tool](PyThreadState* state) {
    if (is_others(state)) tool = state->c_traceobj != nullptr ? state->c_traceobj : Py_None;
  });
  Tracer::get().note_displaced(tool);
  return 0;
}

}  // namespace

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
  cpython::each_thread([&others](PyThreadState* state) { others = others || is_others(state); });
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

// CPython makes these events from sys.monitoring's and notes which one in what_event.
Kind how_it_begins(cpython::Frame /*frame*/) noexcept {
  switch (PyThreadState_Get()->what_event) {
    case cpython::kResumes:
      return Kind::kResume;
    case cpython::kThrows:
      return Kind::kThrow;
    default:
      return Kind::kCall;
  }
}

Kind how_it_ends(cpython::Frame /*frame*/, const PyObject* result) noexcept {
  if (result == nullptr) return Kind::kUnwind;
  switch (PyThreadState_Get()->what_event) {
    case cpython::kUnwinds:  // 3.12 passes None as the result
      return Kind::kUnwind;
    case cpython::kYields:
      return Kind::kYield;
    default:
      return Kind::kReturn;
  }
}

#endif

bool is_ours(PyThreadState* state) noexcept {
  const bool ours = state->c_traceobj == slot_object();
  if (ours == Tracer::get().displaced()) [[unlikely]] {
    PyObject* tool = state->c_traceobj == nullptr ? Py_None : state->c_traceobj;
    Tracer::get().note_displaced(ours ? nullptr : tool);
  }
  // Another tool took the profile slot while our trace function was off: switch it on for good.
  if (kProfiles && ours && state->c_profilefunc != &on_profile) [[unlikely]]
    state->c_tracefunc = &on_trace;
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

}  // namespace oddrank::trace
