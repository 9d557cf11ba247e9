// Events of PyEval_SetTrace and PyEval_SetProfile into the tracer.
#include "trace/hooks/hook.hpp"

#if PY_VERSION_HEX < 0x030C0000

#include <opcode.h>

#include <cstring>

#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

constexpr int kGenerators = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
constexpr auto kLineByOffset =
    static_cast<std::uint8_t>(static_cast<std::uint8_t>(Kind::kLine) | kIsOffset);

bool hook_this_thread();
int on_trace(PyObject* self, PyFrameObject* frame, int what, PyObject* argument);
int on_profile(PyObject* self, PyFrameObject* frame, int what, PyObject* argument);

// Called as a trace function, for a call, it makes the thread ours. It holds nothing, there is one,
// and it is no frame's own trace function: under another tool that would call us back.
PyObject* call_trace_object(PyObject* /*self*/, PyObject* args, PyObject* /*keywords*/) {
  PyObject* what = PyTuple_GET_SIZE(args) == 3 ? PyTuple_GET_ITEM(args, 1) : nullptr;
  const bool is_call = what != nullptr && PyUnicode_Check(what) != 0 &&
                       PyUnicode_CompareWithASCIIString(what, "call") == 0;
  if (is_call && !hook_this_thread()) return nullptr;
  Py_RETURN_NONE;
}

PyTypeObject* trace_type() {
  static PyTypeObject type = [] {
    PyTypeObject made = {PyVarObject_HEAD_INIT(nullptr, 0)};
    made.tp_name = "oddrank._core.TraceHook";
    made.tp_basicsize = sizeof(PyObject);
    made.tp_flags = Py_TPFLAGS_DEFAULT;
    made.tp_doc = "oddrank's trace hook, as sys.gettrace() shows it.";
    made.tp_call = &call_trace_object;
    return made;
  }();
  static const int ready = PyType_Ready(&type);
  return ready == 0 ? &type : nullptr;
}

PyObject* the_object() {
  static PyObject* const object = trace_type() == nullptr ? nullptr : _PyObject_New(trace_type());
  return object;
}

std::uint8_t opcode_at(cpython::Frame frame, std::uint32_t offset) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  return static_cast<std::uint8_t>(PyBytes_AS_STRING(frame->code->co_code)[offset]);
#else
  return static_cast<std::uint8_t>(frame->code->co_code_adaptive[offset]);
#endif
}

Kind how_it_begins(cpython::Frame frame) noexcept {
  if ((frame->code->co_flags & kGenerators) == 0) return Kind::kCall;
#if PY_VERSION_HEX < 0x030B0000
  return reinterpret_cast<const PyFrameObject*>(frame)->f_lasti >= 0 ? Kind::kResume : Kind::kCall;
#else
  const std::uint32_t offset = cpython::offset_of(frame);
  const std::uint8_t opcode = opcode_at(frame, offset);
  const bool resumes = (opcode == RESUME || opcode == RESUME_QUICK) &&
                       (frame->code->co_code_adaptive[offset + 1] & 3) != 0;
  return resumes ? Kind::kResume : Kind::kCall;
#endif
}

Kind how_it_ends(cpython::Frame frame, const PyObject* result) noexcept {
  if (result == nullptr) return Kind::kUnwind;
  if ((frame->code->co_flags & kGenerators) == 0) return Kind::kReturn;
  const std::uint8_t opcode = opcode_at(frame, cpython::offset_of(frame));
#if PY_VERSION_HEX < 0x030B0000
  return opcode == YIELD_VALUE || opcode == YIELD_FROM ? Kind::kYield : Kind::kReturn;
#else
  return opcode == YIELD_VALUE ? Kind::kYield : Kind::kReturn;
#endif
}

// Whose trace function the calling thread has: noted where it is not ours, or is ours again.
bool is_ours(PyThreadState* state) noexcept {
  const bool ours = state->c_traceobj == the_object();
  if (ours == Tracer::get().displaced()) [[unlikely]] {
    PyObject* tool = state->c_traceobj == nullptr ? Py_None : state->c_traceobj;
    Tracer::get().note_displaced(ours ? nullptr : tool);
  }
  // Another tool took the profile slot while lines were not wanted: nobody would want them again.
  if (ours && state->c_profilefunc != &on_profile) [[unlikely]]
    state->c_tracefunc = &on_trace;
  return ours;
}

// Lines wanted: the trace function is there; else it is not. Another tool's is left alone.
void want_lines(PyThreadState* state, bool wanted) noexcept {
  if (is_ours(state)) state->c_tracefunc = wanted ? &on_trace : nullptr;
}

void check(const TracedThread& thread, cpython::Frame innermost) noexcept {
  Tracer& tracer = Tracer::get();
  if (tracer.checks()) [[unlikely]]
    tracer.checked(thread.is_true_of(innermost));
}

void begin(TracedThread& thread, cpython::Frame frame, bool toggles) noexcept {
  const CodeInfo info = thread.enter(frame, how_it_begins(frame));
  check(thread, frame);
  if (toggles) want_lines(PyThreadState_Get(), info.level == Level::kLines);
}

void end(TracedThread& thread, cpython::Frame frame, const PyObject* result,
         bool toggles) noexcept {
  const CodeInfo caller = thread.leave(frame, how_it_ends(frame, result));
  check(thread, cpython::caller_of(frame));
  if (toggles) want_lines(PyThreadState_Get(), caller.level == Level::kLines);
}

int on_trace(PyObject* /*self*/, PyFrameObject* object, int what, PyObject* argument) {
  TracedThread* thread = Tracer::get().here();
  if (thread == nullptr) return 0;
  const cpython::Frame frame = cpython::frame_of(object);
  if (what == PyTrace_LINE) [[likely]] {
    thread->move(frame, cpython::offset_of(frame), kLineByOffset);
    check(*thread, frame);
    return 0;
  }
  const bool profiled = PyThreadState_Get()->c_profilefunc == &on_profile;
  if (profiled) return 0;
  if (what == PyTrace_CALL) begin(*thread, frame, false);
  if (what == PyTrace_RETURN) end(*thread, frame, argument, false);
  return 0;
}

int on_profile(PyObject* /*self*/, PyFrameObject* object, int what, PyObject* argument) {
  if (what != PyTrace_CALL && what != PyTrace_RETURN) return 0;
  TracedThread* thread = Tracer::get().here();
  if (thread == nullptr) return 0;
  const cpython::Frame frame = cpython::frame_of(object);
  if (what == PyTrace_CALL) {
    begin(*thread, frame, true);
  } else {
    end(*thread, frame, argument, true);
  }
  return 0;
}

// Takes the slots of a thread that are free, or hold our object as somebody has put it back. What
// is another tool's stays so: with its trace function there are no lines, with both taken nothing.
bool take(PyThreadState* state) {
  PyObject* object = the_object();
  if (object == nullptr) return false;
  const bool may_profile = state->c_profileobj == nullptr ||
                           (state->c_profileobj == object && state->c_profilefunc != &on_profile);
  if (may_profile && _PyEval_SetProfile(state, &on_profile, object) < 0) return false;
  const bool may_trace = state->c_traceobj == nullptr || state->c_traceobj == object;
  return !may_trace || _PyEval_SetTrace(state, &on_trace, object) == 0;
}

void release(PyThreadState* state) {
  if (state->c_traceobj == the_object() && _PyEval_SetTrace(state, nullptr, nullptr) < 0) {
    PyErr_Clear();
  }
  if (state->c_profilefunc == &on_profile && _PyEval_SetProfile(state, nullptr, nullptr) < 0) {
    PyErr_Clear();
  }
}

template <class Act>
void each_thread(Act act) {
  PyThreadState* state = PyInterpreterState_ThreadHead(PyThreadState_Get()->interp);
  for (; state != nullptr; state = PyThreadState_Next(state)) act(state);
}

bool hook_this_thread() {
  PyThreadState* state = PyThreadState_Get();
  if (!take(state)) return false;
  is_ours(state);
  TracedThread* thread = Tracer::get().here();
  if (thread != nullptr) thread->resynchronise(cpython::innermost(state));
  return true;
}

// Before a profiler takes the profile slot: with it goes who would want lines again.
int on_audit(const char* event, PyObject* /*args*/, void* /*unused*/) {
  if (std::strcmp(event, "sys.setprofile") != 0) return 0;
  PyThreadState* state = _PyThreadState_UncheckedGet();
  if (state != nullptr && state->c_traceobj != nullptr && state->c_traceobj == the_object()) {
    state->c_tracefunc = &on_trace;
  }
  return 0;
}

// A debugger that has ended leaves the slot empty: it is ours again.
void look() {
  PyThreadState* state = PyThreadState_Get();
  if (!is_ours(state) && state->c_traceobj == nullptr && !hook_this_thread()) PyErr_Clear();
}

}  // namespace

const Hook& hook() noexcept {
  static const Hook the_hook{"settrace", false, nullptr, &look};
  return the_hook;
}

PyObject* trace_object() {
  PyObject* object = the_object();
  Py_XINCREF(object);
  return object;
}

// Threads that run already are hooked too; what they stand in is known at their next event.
bool arm_hook() {
  static const int audited = PySys_AddAuditHook(&on_audit, nullptr);
  static_cast<void>(audited);
  const PyThreadState* self = PyThreadState_Get();
  each_thread([self](PyThreadState* state) {
    if (state != self && !take(state)) PyErr_Clear();
  });
  return hook_this_thread();
}

void disarm_hook() { each_thread(&release); }

}  // namespace oddrank::trace

#endif
