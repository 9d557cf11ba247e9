// The class Laps: plain CPython methods, since a binding's layer would cost more than what they do.
#include <new>
#include <utility>

#include "base/static_type.hpp"
#include "control/bind.hpp"
#include "control/laps.hpp"

namespace py = pybind11;

namespace oddrank {
namespace {

using control::Laps;

struct LapsObject {
  PyObject_HEAD Laps laps;
};

Laps& laps_of(PyObject* self) noexcept { return reinterpret_cast<LapsObject*>(self)->laps; }

PyObject* enter(PyObject* self, PyObject* /*unused*/) {
  laps_of(self).enter();
  Py_RETURN_NONE;
}

PyObject* leave(PyObject* self, PyObject* /*unused*/) {
  laps_of(self).leave();
  Py_RETURN_NONE;
}

PyObject* bytes_of(const std::int64_t* values, std::size_t count) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values),
                                   static_cast<Py_ssize_t>(count * sizeof *values));
}

PyObject* starts(PyObject* self, PyObject* /*unused*/) {
  return bytes_of(laps_of(self).starts(), laps_of(self).count());
}

PyObject* durations(PyObject* self, PyObject* /*unused*/) {
  return bytes_of(laps_of(self).durations(), laps_of(self).count());
}

PyObject* count(PyObject* self, void* /*unused*/) {
  return PyLong_FromSize_t(laps_of(self).count());
}

PyObject* dropped(PyObject* self, void* /*unused*/) {
  return PyLong_FromUnsignedLongLong(laps_of(self).dropped());
}

void destroy(PyObject* self) {
  laps_of(self).~Laps();
  PyObject_Free(self);
}

PyMethodDef methods[] = {
    {"enter", &enter, METH_NOARGS,
     "enter($self, /)\n--\n\nA collective begins: from now on this rank waits for others."},
    {"leave", &leave, METH_NOARGS, "leave($self, /)\n--\n\nIt has ended. Without enter: nothing."},
    {"starts", &starts, METH_NOARGS,
     "starts($self, /)\n--\n\nWhen each lap was entered: int64 nanoseconds of CLOCK_MONOTONIC."},
    {"durations", &durations, METH_NOARGS,
     "durations($self, /)\n--\n\nFrom enter to leave of each lap: int64 nanoseconds."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef values[] = {{"count", &count, nullptr, "Laps that were left and kept.", nullptr},
                        {"dropped", &dropped, nullptr, "Laps beyond the capacity.", nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject type = [] {
  PyTypeObject made = blank_static_type();
  made.tp_name = "oddrank._core.Laps";
  made.tp_basicsize = sizeof(LapsObject);
  made.tp_dealloc = &destroy;
  made.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  made.tp_doc = "When collectives began and how long they took; made by Worker.laps(capacity).";
  made.tp_methods = methods;
  made.tp_getset = values;
  return made;
}();

}  // namespace

void bind_laps(py::module_& m) {
  if (PyType_Ready(&type) != 0) throw py::error_already_set();
  m.attr("Laps") = py::handle(reinterpret_cast<PyObject*>(&type));
}

py::object make_laps(Laps laps) {
  auto* object = PyObject_New(LapsObject, &type);
  if (object == nullptr) throw py::error_already_set();
  new (&object->laps) Laps(std::move(laps));
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
}

}  // namespace oddrank
