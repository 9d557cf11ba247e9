// Bindings of the collective recorder. Includes no torch header.
#include <exception>

#include "os/cpython.hpp"
#include "os/error.hpp"
#include "trace/torch/collectives.hpp"

namespace oddrank {
namespace {

PyObject* start(PyObject* /*module*/, PyObject* capsule) {
  const auto* sink = static_cast<const trace::CollectiveSink*>(
      PyCapsule_GetPointer(capsule, trace::CollectiveSink::kCapsule));
  if (sink == nullptr) return nullptr;
  try {
    const WithoutGil unlocked;
    trace::start_collectives(*sink);
  } catch (const Error& error) {
    set_oddrank_error(error);
    return nullptr;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* stop(PyObject* /*module*/, PyObject* /*unused*/) {
  const WithoutGil unlocked;
  trace::stop_collectives();
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"start_collectives", &start, METH_O,
     "start_collectives(sink, /)\n--\n\n"
     "Tells `sink` (of _core.trace_collective_sink) of every collective from now on."},
    {"stop_collectives", &stop, METH_NOARGS,
     "stop_collectives()\n--\n\n"
     "Lets collectives pass unrecorded; the open ones are still told to end."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int bind_collectives(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace oddrank
