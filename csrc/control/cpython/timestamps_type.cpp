// The Python class Timestamps, with plain CPython methods: pybind11 costs more than their work.
#include <Python.h>

#include <new>
#include <utility>

#include "control/page.hpp"
#include "os/cpython.hpp"

namespace oddrank::control {
namespace {

struct TimestampsObject {
  PyObject_HEAD Timestamps timestamps;
};

Timestamps& timestamps_of(PyObject* self) noexcept {
  return reinterpret_cast<TimestampsObject*>(self)->timestamps;
}

PyObject* enter(PyObject* self, PyObject* /*unused*/) {
  timestamps_of(self).enter();
  Py_RETURN_NONE;
}

PyObject* leave(PyObject* self, PyObject* /*unused*/) {
  timestamps_of(self).leave();
  Py_RETURN_NONE;
}

PyObject* bytes_of(const std::int64_t* values, std::size_t count) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values),
                                   static_cast<Py_ssize_t>(count * sizeof *values));
}

PyObject* starts(PyObject* self, PyObject* /*unused*/) {
  return bytes_of(timestamps_of(self).starts(), timestamps_of(self).count());
}

PyObject* durations(PyObject* self, PyObject* /*unused*/) {
  return bytes_of(timestamps_of(self).durations(), timestamps_of(self).count());
}

PyObject* count(PyObject* self, void* /*unused*/) {
  return PyLong_FromSize_t(timestamps_of(self).count());
}

PyObject* dropped(PyObject* self, void* /*unused*/) {
  return PyLong_FromUnsignedLongLong(timestamps_of(self).dropped());
}

void destroy(PyObject* self) {
  timestamps_of(self).~Timestamps();
  PyObject_Free(self);
}

PyMethodDef methods[] = {
    {"enter", &enter, METH_NOARGS,
     "enter($self, /)\n--\n\nA collective begins: from now on this rank waits for others."},
    {"leave", &leave, METH_NOARGS,
     "leave($self, /)\n--\n\nThe collective has ended. Does nothing without enter."},
    {"starts", &starts, METH_NOARGS,
     "starts($self, /)\n--\n\nWhen each collective began: int64 nanoseconds of CLOCK_MONOTONIC."},
    {"durations", &durations, METH_NOARGS,
     "durations($self, /)\n--\n\nFrom enter to leave of each collective: int64 nanoseconds."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef values[] = {
    {"count", &count, nullptr, "Collectives with both timestamps.", nullptr},
    {"dropped", &dropped, nullptr, "Collectives beyond the capacity: not kept.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject type = [] {
  PyTypeObject made = blank_static_type();
  made.tp_name = "oddrank._core.Timestamps";
  made.tp_basicsize = sizeof(TimestampsObject);
  made.tp_dealloc = &destroy;
  made.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  made.tp_doc =
      "When collectives began and how long they took; made by Worker.timestamps(capacity).";
  made.tp_methods = methods;
  made.tp_getset = values;
  return made;
}();

}  // namespace

int bind_timestamps(PyObject* module) noexcept {
  if (PyType_Ready(&type) != 0) return -1;
  return PyModule_AddObjectRef(module, "Timestamps", reinterpret_cast<PyObject*>(&type));
}

PyObject* make_timestamps(Timestamps timestamps) noexcept {
  auto* object = PyObject_New(TimestampsObject, &type);
  if (object == nullptr) return nullptr;
  new (&object->timestamps) Timestamps(std::move(timestamps));
  return reinterpret_cast<PyObject*>(object);
}

}  // namespace oddrank::control
