// The hook from 3.12 on: passes events of sys.monitoring to the tracer.
//
// We use two tools. The first one finds code: PY_START and PY_RESUME are global, and disabled
// location by location once their code is known. Code that is not recorded then runs at full speed.
// Recorded code gets local events of the second tool, which can be taken away and asked for again.
// PY_UNWIND and PY_THROW cannot be local before 3.15: they are global, and cost time only when an
// exception passes.
#include "trace/hooks/tracer.hpp"

#if PY_VERSION_HEX >= 0x030C0000

#include <array>
#include <utility>

#include "os/cpython.hpp"

namespace oddrank::trace {
namespace {

// The events in use. Their bits differ between versions: ask_for_bits() reads them.
enum What : std::size_t { kStart, kResume, kReturn, kYield, kLine, kThrow, kUnwind, kEvents };
constexpr std::array<const char*, kEvents> kNames = {
    "PY_START", "PY_RESUME", "PY_RETURN", "PY_YIELD", "LINE", "PY_THROW", "PY_UNWIND"};
std::array<int, kEvents> bits{};
// Tool ids without a purpose; 0 is for debuggers, 1 coverage, 2 profilers, 5 optimisers.
constexpr int kFinder = 4, kTool = 3;  // kTool: of recorded code

constexpr const char* kToolName = "oddrank";

bool has_tools = false;
PyObject* disable = nullptr;

struct Callback {
  PyObject_HEAD vectorcallfunc call;
};

PyObject* none() noexcept { Py_RETURN_NONE; }

PyObject* off() noexcept {
  Py_INCREF(disable);
  return disable;
}

// Whether an event is of a frame that is not recorded: the callers' frames must not take it. One on
// the list is recorded.
bool is_off(const TracedThread& thread, cpython::Frame frame) noexcept {
  return !thread.stands_on(frame) && Tracer::get().info_of(frame).level == Level::kOff;
}

// Calls `see(tracer, thread, frame)` for an event of the running frame if this thread records.
template <class See>
PyObject* at_frame(See see) noexcept {
  Tracer& tracer = Tracer::get();
  TracedThread* thread = tracer.here();
  if (thread != nullptr) see(tracer, *thread, cpython::innermost(PyThreadState_Get()));
  return none();
}

void checked(Tracer& tracer, TracedThread& thread, cpython::Frame frame) noexcept {
  tracer.check(thread, frame);
  if (thread.is_due()) [[unlikely]]
    tracer.review(thread, frame);
}

template <Kind kind>
PyObject* begins(PyObject*, PyObject* const*, std::size_t, PyObject*) {
  return at_frame([](Tracer& tracer, TracedThread& thread, cpython::Frame frame) {
    if (tracer.info_of(frame).level == Level::kOff) return;
    thread.enter(frame, kind);
    checked(tracer, thread, frame);
  });
}

// An event of the first tool. That of the second tool follows at once if the code was known.
template <Kind kind>
PyObject* finds(PyObject*, PyObject* const*, std::size_t, PyObject*) {
  TracedThread* thread = Tracer::get().here();
  if (thread == nullptr) return none();
  const cpython::Frame frame = cpython::innermost(PyThreadState_Get());
  const bool known = Tracer::get().knows(frame);
  if (Tracer::get().info_of(frame).level != Level::kOff && !known) {
    Py_DECREF(begins<kind>(nullptr, nullptr, 0, nullptr));
  }
  return off();
}

template <Kind kind>
PyObject* ends(PyObject*, PyObject* const*, std::size_t, PyObject*) {
  return at_frame([](Tracer& tracer, TracedThread& thread, cpython::Frame frame) {
    if (is_off(thread, frame)) return;
    thread.leave(frame, kind);
    checked(tracer, thread, cpython::caller_of(frame));
  });
}

PyObject* on_line(PyObject*, PyObject* const* args, std::size_t, PyObject*) {
  return at_frame([args](Tracer& tracer, TracedThread& thread, cpython::Frame frame) {
    if (is_off(thread, frame)) return;
    thread.move(frame, cpython::small_number(args[1]), 0);
    checked(tracer, thread, frame);
  });
}

PyObject* on_throw(PyObject*, PyObject* const*, std::size_t, PyObject*) {
  return at_frame([](const Tracer&, TracedThread& thread, cpython::Frame frame) {
    thread.enter_by_throw(frame);
    Tracer::get().check(thread, frame);
  });
}

constexpr std::array<vectorcallfunc, kEvents> kCallbacks = {&begins<Kind::kCall>,
                                                            &begins<Kind::kResume>,
                                                            &ends<Kind::kReturn>,
                                                            &ends<Kind::kYield>,
                                                            &on_line,
                                                            &on_throw,
                                                            &ends<Kind::kUnwind>};

PyTypeObject* callback_type() {
  static PyTypeObject type = [] {
    PyTypeObject made = blank_static_type();
    made.tp_name = "oddrank._core.MonitoringCallback";
    made.tp_basicsize = sizeof(Callback);
    made.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
    made.tp_vectorcall_offset = offsetof(Callback, call);
    made.tp_call = &PyVectorcall_Call;
    return made;
  }();
  static const int ready = PyType_Ready(&type);
  return ready == 0 ? &type : nullptr;
}

PyObject* monitoring() noexcept { return PySys_GetObject("monitoring"); }  // borrowed

// Calls a function of sys.monitoring. Returns false with a Python error.
template <typename... Args>
bool call(const char* name, const char* format, Args... args) {
  PyObject* result = PyObject_CallMethod(monitoring(), name, format, args...);
  Py_XDECREF(result);
  return result != nullptr;
}

bool take_tools() {
  if (has_tools) return true;
  if (call("use_tool_id", "is", kFinder, kToolName)) {
    has_tools = call("use_tool_id", "is", kTool, kToolName);
    if (has_tools) return true;
    const KeepError keep;
    if (!call("free_tool_id", "i", kFinder)) PyErr_Clear();
  }
  if (PyErr_ExceptionMatches(PyExc_ValueError) == 0) return false;
  PyErr_SetString(PyExc_RuntimeError,
                  "tools 3 and 4 of sys.monitoring must be free: disarm the tool that has one");
  return false;
}

bool ask_for_bits() {
  PyObject* events = PyObject_GetAttrString(monitoring(), "events");
  for (std::size_t what = 0; events != nullptr && what < kEvents; ++what) {
    PyObject* bit = PyObject_GetAttrString(events, kNames[what]);
    bits[what] = bit == nullptr ? 0 : static_cast<int>(PyLong_AsLong(bit));
    Py_XDECREF(bit);
  }
  Py_XDECREF(events);
  return PyErr_Occurred() == nullptr;
}

bool register_callback(int of, std::size_t what, vectorcallfunc function) {
  auto* callback = PyObject_New(Callback, callback_type());
  if (callback == nullptr) return false;
  callback->call = function;
  return call("register_callback", "iiN", of, bits[what], callback);
}

bool register_callbacks() {
  if (callback_type() == nullptr) return false;
  for (std::size_t what = 0; what < kEvents; ++what) {
    const int of = what == kThrow || what == kUnwind ? kFinder : kTool;
    if (!register_callback(of, what, kCallbacks[what])) return false;
  }
  return register_callback(kFinder, kStart, &finds<Kind::kCall>) &&
         register_callback(kFinder, kResume, &finds<Kind::kResume>);
}

// Returns the name under which a tool id is in use; a new reference. Another tool can displace ours
// only by freeing its id.
PyObject* name_of_tool(int id) {
  PyObject* name = PyObject_CallMethod(monitoring(), "get_tool", "i", id);
  if (name == nullptr) PyErr_Clear();
  return name;
}

bool is_our_name(PyObject* name) {
  return name != nullptr && PyUnicode_Check(name) != 0 &&
         PyUnicode_CompareWithASCIIString(name, kToolName) == 0;
}

// Includes code that already runs in some thread.
void include_running() {
  cpython::each_thread([](const PyThreadState* state) {
    cpython::Frame frame = cpython::innermost(state);
    for (; frame != nullptr; frame = cpython::caller_of(frame)) Tracer::get().info_of(frame);
  });
}

bool is_ours(int id) {
  PyObject* name = name_of_tool(id);
  const bool ours = is_our_name(name);
  Py_XDECREF(name);
  return ours;
}

}  // namespace

namespace hook {

const char* const kName = "monitoring";
// Up to twice what benchmarks/trace/event_cost.py measures: below callers that are off, each call
// searches the frames.
const EventCosts kCosts{45, 90};

const bool kMayRest = false;

void set_quiet(PyThreadState* /*state*/, bool /*quiet*/) noexcept {}

void include(PyCodeObject* code, Level level) {
  const int lines = level == Level::kLines ? bits[kLine] : 0;
  const int calls = bits[kStart] | bits[kResume] | bits[kReturn] | bits[kYield];
  const int events = level == Level::kOff ? 0 : calls | lines;
  // CPython refuses Cython's shims, which have no bytecode.
  if (!call("set_local_events", "iOi", kTool, code, events)) PyErr_Clear();
}

void look() {
  PyObject* name = name_of_tool(kFinder);
  if (is_our_name(name)) {
    Py_DECREF(name);
    name = name_of_tool(kTool);
  }
  const bool ours = is_our_name(name);
  if (ours == Tracer::get().displaced()) {
    Tracer::get().note_displaced(ours ? nullptr : name == nullptr ? Py_None : name);
  }
  Py_XDECREF(name);
}

bool arm() {
  if (disable == nullptr) disable = PyObject_GetAttrString(monitoring(), "DISABLE");
  if (disable == nullptr || !ask_for_bits() || !take_tools() || !register_callbacks()) return false;
  Tracer::get().budget().set_lowest(Level::kOff);
  const int everywhere = bits[kStart] | bits[kResume] | bits[kThrow] | bits[kUnwind];
  if (!call("set_events", "ii", kFinder, everywhere)) return false;
  // Re-enables locations that an earlier arm() disabled, for every tool: skip it the first time.
  static bool armed_before = false;
  if (std::exchange(armed_before, true) && !call("restart_events", nullptr)) return false;
  // Include again the code objects that an earlier arm() included.
  Tracer::get().codes().each([](const PyCodeObject* code, CodeInfo& info) {
    if (info.level != Level::kOff) include(const_cast<PyCodeObject*>(code), info.level);
  });
  include_running();
  TracedThread* thread = Tracer::get().here();
  if (thread != nullptr) thread->resynchronise(cpython::innermost(PyThreadState_Get()));
  return true;
}

void disarm() {
  if (!std::exchange(has_tools, false)) return;
  if (is_ours(kTool)) {
    Tracer::get().codes().each([](const PyCodeObject* code, CodeInfo& info) {
      if (info.level != Level::kOff) include(const_cast<PyCodeObject*>(code), Level::kOff);
    });
  }
  for (const int tool : {kFinder, kTool}) {
    if (!is_ours(tool)) continue;
    if (!call("set_events", "ii", tool, 0)) PyErr_Clear();
    if (!call("free_tool_id", "i", tool)) PyErr_Clear();
  }
}

void settle(PyThreadState* /*state*/, Level /*level*/) noexcept {}

PyObject* trace_object() { return nullptr; }

}  // namespace hook

PyObject* unseen(PyObject* function) { return Py_NewRef(function); }

PyObject* quiet_imports(PyObject* function) { return Py_NewRef(function); }

}  // namespace oddrank::trace

#endif
