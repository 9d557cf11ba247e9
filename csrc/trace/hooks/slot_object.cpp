// The object in our threads' slots, which sys.gettrace() shows.
#include "os/cpython.hpp"
#include "trace/hooks/hook.hpp"
#include "trace/hooks/settrace.hpp"
#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

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

}  // namespace

PyObject* slot_object() {
  static PyObject* const object = slot_type() == nullptr ? nullptr : _PyObject_New(slot_type());
  return object;
}

}  // namespace oddrank::trace
