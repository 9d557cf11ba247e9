// The hook up to 3.11: takes the trace and profile slots of threads (PyEval_SetTrace,
// PyEval_SetProfile), notices when another tool takes them, and passes their events to the tracer.
#include "trace/hooks/tracer.hpp"

#if PY_VERSION_HEX < 0x030C0000

#include <opcode.h>

#include <cstring>
#include <optional>

#include "os/cpython.hpp"

namespace oddrank::trace {
namespace {

constexpr int kGenerators = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;

// Set while oddrank changes slots itself: CPython raises the same audit event for that.
bool we_are_at_it = false;

// CPython calls these. Our profile function switches the trace function on only in code whose lines
// are recorded.
int on_trace(PyObject* self, PyFrameObject* object, int what, PyObject* argument);
int on_profile(PyObject* self, PyFrameObject* object, int what, PyObject* argument);

// Returns the object in our slots, which sys.gettrace() shows; the same one for all threads. Called
// as a trace function, it hooks the calling thread. Borrowed; nullptr with a Python error.
PyObject* slot_object();

// Whether our functions are out of this thread's slots for a while: see set_quiet().
bool is_quiet(const PyThreadState* state) noexcept {
  return state->c_profilefunc == nullptr && state->c_profileobj != nullptr &&
         state->c_profileobj == slot_object();
}

// Returns whether the calling thread's trace slot is ours, and notes a change.
bool is_ours(PyThreadState* state) noexcept {
  const bool ours = state->c_traceobj == slot_object();
  if (ours == Tracer::get().displaced()) [[unlikely]] {
    PyObject* tool = state->c_traceobj == nullptr ? Py_None : state->c_traceobj;
    Tracer::get().note_displaced(ours ? nullptr : tool);
  }
  // Another tool took the profile slot while our trace function was off: switch it on for good.
  const bool quiet = is_quiet(state) || Tracer::get().rests();
  if (ours && state->c_profilefunc != &on_profile && !quiet) [[unlikely]]
    state->c_tracefunc = &on_trace;
  return ours;
}

// Takes a thread's slots that are free or hold our object (a tool may have restored it). Leaves
// another tool's slots alone: without the trace slot there are no lines, without both no events.
bool take(PyThreadState* state, PyObject* object) {
  const bool has_ours = state->c_profilefunc == &on_profile || is_quiet(state);
  const bool may_profile =
      state->c_profileobj == nullptr || (state->c_profileobj == object && !has_ours);
  if (may_profile && _PyEval_SetProfile(state, &on_profile, object) < 0) return false;
  const bool may_trace = state->c_traceobj == nullptr || state->c_traceobj == object;
  return !may_trace || _PyEval_SetTrace(state, &on_trace, object) == 0;
}

// Takes the calling thread's slots and reads its stack. Returns false with a Python error.
bool take_this_thread() {
  PyThreadState* state = PyThreadState_Get();
  PyObject* object = slot_object();
  if (object == nullptr || !take(state, object)) return false;
  is_ours(state);
  TracedThread* thread = Tracer::get().here();
  if (thread == nullptr) return true;
  thread->resynchronise(cpython::innermost(state));
  if (Tracer::get().rests() || thread->imports() != nullptr) {  // a tool puts our functions back
    hook::set_quiet(state, true);
    thread->sample(cpython::innermost(state), read_tsc());
  }
  return true;
}

void release(PyThreadState* state) {
  if (state->c_traceobj == slot_object() && _PyEval_SetTrace(state, nullptr, nullptr) < 0) {
    PyErr_Clear();
  }
  const bool ours = state->c_profilefunc == &on_profile || is_quiet(state);
  if (ours && _PyEval_SetProfile(state, nullptr, nullptr) < 0) {
    PyErr_Clear();
  }
}

// A tool sets this thread's trace function: treat the lines as lost until the slot is ours again.
void lose_lines_here() noexcept {
  if (we_are_at_it || !Tracer::get().running()) return;
  const PyThreadState* state = PyThreadState_Get();
  if (state->c_traceobj == nullptr || state->c_traceobj != slot_object()) return;
  if (TracedThread* thread = Tracer::get().here()) thread->lose_lines();
}

// Called before a tool takes the trace slot or a profiler the profile slot. Our profile function
// switches our trace function on and off: once it is gone, the trace function must stay on.
int on_audit(const char* event, PyObject* /*args*/, void* /*unused*/) {
  if (std::strcmp(event, "sys.settrace") == 0) lose_lines_here();
  if (std::strcmp(event, "sys.setprofile") != 0 || Tracer::get().rests()) return 0;
  PyThreadState* state = PyThreadState_Get();
  if (state->c_traceobj != nullptr && state->c_traceobj == slot_object()) {
    TracedThread* thread = is_quiet(state) ? Tracer::get().here() : nullptr;
    if (thread != nullptr) thread->end_import(cpython::innermost(state));
    state->c_tracefunc = &on_trace;
  }
  return 0;
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

// Switches our trace function on or off, never another tool's. `frame` must be the innermost.
void want_lines(TracedThread& thread, cpython::Frame frame, bool wanted) noexcept {
  PyThreadState* state = PyThreadState_Get();
  if (!is_ours(state)) return;
  state->c_tracefunc = wanted ? &on_trace : nullptr;
  if (thread.lines_lost()) [[unlikely]]
    thread.resynchronise(frame);
}

void begin(TracedThread& thread, cpython::Frame frame, bool toggles) noexcept {
  const CodeInfo info = thread.enter(frame, how_it_begins(frame));
  Tracer::get().check(thread, frame);
  if (toggles) want_lines(thread, frame, info.level == Level::kLines);
  if (thread.is_due()) [[unlikely]]
    Tracer::get().review(thread, frame);
}

void end(TracedThread& thread, cpython::Frame frame, const PyObject* result,
         bool toggles) noexcept {
  const CodeInfo info = thread.leave(frame, how_it_ends(frame, result));
  const cpython::Frame caller = cpython::caller_of(frame);
  Tracer::get().check(thread, caller);
  if (toggles) want_lines(thread, caller, info.level == Level::kLines);
  if (thread.is_due()) [[unlikely]]
    Tracer::get().review(thread, caller);
}

// A C function has returned. After a greenlet's switch(), to another frame than its caller.
void go_on(TracedThread& thread, cpython::Frame frame) noexcept {
  if (thread.stands_on(frame)) [[likely]]
    return;
  thread.resynchronise(frame);
  Tracer::get().check(thread, frame);
  want_lines(thread, frame, thread.stands_on(frame) && thread.top().info.level == Level::kLines);
}

// Ends the events of the calling thread within `frame`, which imports a module.
void begin_quiet(PyThreadState* state, TracedThread& thread, cpython::Frame frame) noexcept {
  hook::set_quiet(state, true);
  thread.begin_import(frame);
}

// The other way; `frame` is the innermost.
void end_quiet(PyThreadState* state, cpython::Frame frame) noexcept {
  const KeepError keep;
  TracedThread* thread = Tracer::get().here();
  if (thread == nullptr) return;
  if (!Tracer::get().rests()) hook::set_quiet(state, false);
  thread->end_import(frame);
  if (state->c_profilefunc != &on_profile) return;
  want_lines(*thread, frame, thread->stands_on(frame) && thread->top().info.level == Level::kLines);
}

// Returns whether these arguments of importlib's function run a module that is recorded.
std::optional<bool> runs_recorded(PyObject* args) noexcept {
  PyObject* code = PyTuple_GET_SIZE(args) == 3 ? PyTuple_GET_ITEM(args, 1) : nullptr;
  PyObject* globals = code == nullptr ? nullptr : PyTuple_GET_ITEM(args, 2);
  if (code == nullptr || PyCode_Check(code) == 0 || PyDict_Check(globals) == 0) return {};
  const std::string_view module = utf8_of(PyDict_GetItemString(globals, "__name__"));
  return Tracer::get().records_import(module, reinterpret_cast<PyCodeObject*>(code));
}

// No destructor stands around a call: while Python ends, it may end this thread.
PyObject* call_import(PyObject* function, PyObject* args, PyObject* keywords) {
  PyThreadState* state = PyThreadState_Get();
  const bool quiet = is_quiet(state);
  const bool hooked = state->c_profilefunc == &on_profile && is_ours(state);
  const bool may_change = state->tracing == 0 && (quiet || hooked) && !Tracer::get().rests();
  TracedThread* thread = may_change ? Tracer::get().here() : nullptr;
  const std::optional<bool> recorded = thread == nullptr ? std::nullopt : runs_recorded(args);
  if (thread == nullptr || recorded.value_or(hooked) == hooked)
    return PyObject_Call(function, args, keywords);
  const cpython::Frame within = thread->imports();
  const cpython::Frame frame = cpython::innermost(state);
  if (hooked) {
    begin_quiet(state, *thread, frame);
  } else {
    end_quiet(state, frame);
  }
  PyObject* result = PyObject_Call(function, args, keywords);
  if (hooked) {
    end_quiet(state, frame);
  } else if (state->c_profilefunc == &on_profile) {
    thread = within == nullptr ? nullptr : Tracer::get().here();
    if (thread != nullptr) begin_quiet(state, *thread, within);
  }
  return result;
}

// Returns None, never itself: else it becomes the frame's trace function, which other tools call.
PyObject* call_slot_object(PyObject* /*self*/, PyObject* args, PyObject* /*keywords*/) {
  PyObject* what = PyTuple_GET_SIZE(args) == 3 ? PyTuple_GET_ITEM(args, 1) : nullptr;
  const bool is_call = what != nullptr && PyUnicode_Check(what) != 0 &&
                       PyUnicode_CompareWithASCIIString(what, "call") == 0;
  if (is_call && Tracer::get().running() && !take_this_thread()) return nullptr;
  Py_RETURN_NONE;
}

PyTypeObject* slot_type() {
  static PyTypeObject type = [] {
    PyTypeObject made = blank_static_type();
    made.tp_name = "oddrank._core.TraceHook";
    made.tp_basicsize = sizeof(PyObject);
    made.tp_flags = Py_TPFLAGS_DEFAULT;
    made.tp_doc = "oddrank's trace hook, as sys.gettrace() shows it.";
    made.tp_call = &call_slot_object;
    return made;
  }();
  static const int ready = PyType_Ready(&type);
  return ready == 0 ? &type : nullptr;
}

PyObject* slot_object() {
  static PyObject* const object = slot_type() == nullptr ? nullptr : _PyObject_New(slot_type());
  return object;
}

int on_trace(PyObject* /*self*/, PyFrameObject* object, int what, PyObject* argument) {
  TracedThread* thread = Tracer::get().here();
  if (thread == nullptr) [[unlikely]]
    return 0;
  const cpython::Frame frame = cpython::frame_of(object);
  if (what == PyTrace_LINE) [[likely]] {
    thread->move(frame, cpython::offset_of(frame), kIsOffset);
    Tracer::get().check(*thread, frame);
    if (thread->is_due()) [[unlikely]]
      Tracer::get().review(*thread, frame);
    return 0;
  }
  if (PyThreadState_Get()->c_profilefunc == &on_profile) return 0;
  if (what == PyTrace_CALL) begin(*thread, frame, false);
  if (what == PyTrace_RETURN) end(*thread, frame, argument, false);
  return 0;
}

int on_profile(PyObject* /*self*/, PyFrameObject* object, int what, PyObject* argument) {
  if (what == PyTrace_C_CALL) return 0;
  TracedThread* thread = Tracer::get().here();
  if (thread == nullptr) return 0;
  const cpython::Frame frame = cpython::frame_of(object);
  if (what == PyTrace_CALL) {
    begin(*thread, frame, true);
  } else if (what == PyTrace_RETURN) {
    end(*thread, frame, argument, true);
  } else {
    go_on(*thread, frame);
  }
  return 0;
}

}  // namespace

PyObject* unseen(PyObject* function) {
  static PyMethodDef method{"unseen", &call_unseen, METH_O, nullptr};
  return PyCFunction_New(&method, function);
}

PyObject* quiet_imports(PyObject* function) {
  static PyMethodDef method{
      "_call_with_frames_removed",
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call_import)),
      METH_VARARGS | METH_KEYWORDS, nullptr};
  return PyCFunction_New(&method, function);
}

namespace hook {

const char* const kName = "settrace";
// Measured by benchmarks/trace/event_cost.py. Calls come from the profile function, for all code:
// only lines can be saved.
const EventCosts kCosts{30, 60};

const bool kMayRest = true;

void include(PyCodeObject* /*code*/, Level /*level*/) {}

// Takes our functions out of the slots that hold our object, or puts them back: while a thread has
// them, CPython runs all its code slower.
void set_quiet(PyThreadState* state, bool quiet) noexcept {
  const PyObject* object = slot_object();
  if (object == nullptr) return;
  if (state->c_profileobj == object) state->c_profilefunc = quiet ? nullptr : &on_profile;
  if (state->c_traceobj == object) state->c_tracefunc = quiet ? nullptr : &on_trace;
  if (state->tracing != 0) return;  // CPython sets it once the hook returns
  const bool any = state->c_tracefunc != nullptr || state->c_profilefunc != nullptr;
#if PY_VERSION_HEX < 0x030B0000
  state->cframe->use_tracing = any ? 1 : 0;
#else
  state->cframe->use_tracing = any ? 255 : 0;
#endif
}

PyObject* trace_object() {
  PyObject* object = slot_object();
  Py_XINCREF(object);
  return object;
}

// Takes the slot again if it is empty: a debugger that has ended leaves it so.
void look() {
  PyThreadState* state = PyThreadState_Get();
  if (!is_ours(state) && state->c_traceobj == nullptr && !take_this_thread()) PyErr_Clear();
}

bool arm() {
  static const int audited = PySys_AddAuditHook(&on_audit, nullptr);
  static_cast<void>(audited);
  Tracer::get().budget().set_lowest(Level::kCalls);
  PyObject* object = slot_object();
  if (object == nullptr) return false;
  // Another thread's stack becomes known at its next event.
  const PyThreadState* self = PyThreadState_Get();
  cpython::each_thread([self, object](PyThreadState* state) {
    if (state != self && !take(state, object)) PyErr_Clear();
  });
  return take_this_thread();
}

void disarm() {
  we_are_at_it = true;
  cpython::each_thread(&release);
  we_are_at_it = false;
}

// Switches a thread's trace function on if the frame on top of its list is recorded at level lines.
// Only if our profile function is there to switch it back.
void settle(PyThreadState* state, Level level) noexcept {
  const bool ours = state->c_traceobj != nullptr && state->c_traceobj == slot_object();
  if (!ours || state->c_profilefunc != &on_profile) return;
  state->c_tracefunc = level == Level::kLines ? &on_trace : nullptr;
}

}  // namespace hook

}  // namespace oddrank::trace

#endif
