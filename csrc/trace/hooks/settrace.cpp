// Passes events of PyEval_SetTrace and PyEval_SetProfile to the tracer.
//
// From 3.12 on CPython builds them on sys.monitoring, for all code and all lines: code that is not
// recorded costs one call per line, and 3.12 takes quadratic time in giant code.
#include "os/cpython.hpp"
#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

constexpr auto kLineByOffset =
    static_cast<std::uint8_t>(static_cast<std::uint8_t>(Kind::kLine) | kIsOffset);

// Measured by benchmarks/trace/event_cost.py. From 3.12 on every line of every code object gives an
// event: it would save nothing to record fewer.
// Up to 3.11 calls come from the profile function, for all code: only lines can be saved.
constexpr EventCosts kCosts = kProfiles ? EventCosts{30, 60} : EventCosts{};

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

// Returns None, never itself: else it becomes the frame's trace function, which other tools call.
PyObject* call_slot_object(PyObject* /*self*/, PyObject* args, PyObject* /*keywords*/) {
  PyObject* what = PyTuple_GET_SIZE(args) == 3 ? PyTuple_GET_ITEM(args, 1) : nullptr;
  const bool is_call = what != nullptr && PyUnicode_Check(what) != 0 &&
                       PyUnicode_CompareWithASCIIString(what, "call") == 0;
  if (is_call && Tracer::get().armed_with(settrace_hook()) && !take_this_thread()) return nullptr;
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
  return take_slots();
}

}  // namespace

// Only if our profile function is there to switch it back.
void settle(PyThreadState* state, Level level) noexcept {
  const bool ours = state->c_traceobj != nullptr && state->c_traceobj == slot_object();
  if (!ours || state->c_profilefunc != &on_profile) return;
  state->c_tracefunc = level == Level::kLines ? &on_trace : nullptr;
}

PyObject* slot_object() {
  static PyObject* const object = slot_type() == nullptr ? nullptr : _PyObject_New(slot_type());
  return object;
}

int on_trace(PyObject* /*self*/, PyFrameObject* object, int what, PyObject* argument) {
  TracedThread* thread = Tracer::get().here();
  if (thread == nullptr) [[unlikely]] {
    release_this_thread();
    return 0;
  }
  const cpython::Frame frame = cpython::frame_of(object);
  if (what == PyTrace_LINE) [[likely]] {
    thread->move(frame, cpython::offset_of(frame), kLineByOffset);
    Tracer::get().check(*thread, frame);
    if (thread->is_due()) [[unlikely]]
      Tracer::get().review(*thread, frame);
    return 0;
  }
  if (kProfiles && PyThreadState_Get()->c_profilefunc == &on_profile) return 0;
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

const Hook& settrace_hook() noexcept {
  static const Hook the_hook{"settrace", false, nullptr,        &settle,      kCosts,
                             &look,      &arm,  &release_slots, &trace_object};
  return the_hook;
}

}  // namespace oddrank::trace
