/* The lower bound: C hooks that do nothing. empty_hook.start("trace" | "profile" | "monitoring") */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

static int on_event(PyObject* self, PyFrameObject* frame, int what, PyObject* argument) {
  return 0;
}

#if PY_VERSION_HEX >= 0x030C0000
typedef struct {
  PyObject_HEAD vectorcallfunc call;
} Callback;

static PyObject* on_call(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  Py_RETURN_NONE;
}

static PyTypeObject callback_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "empty_hook.Callback",
    .tp_basicsize = sizeof(Callback),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Callback, call),
    .tp_call = PyVectorcall_Call,
};

static int start_monitoring(void) {
  static const char* const names[] = {"LINE", "PY_START", "PY_RESUME", "PY_RETURN", "PY_YIELD"};
  PyObject* monitoring = PySys_GetObject("monitoring");
  PyObject* events = PyObject_GetAttrString(monitoring, "events");
  long all = 0;
  if (PyType_Ready(&callback_type) < 0 || events == NULL) return -1;
  if (!PyObject_CallMethod(monitoring, "use_tool_id", "is", 3, "empty")) return -1;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    Callback* callback = PyObject_New(Callback, &callback_type);
    PyObject* bit = PyObject_GetAttrString(events, names[i]);
    if (callback == NULL || bit == NULL) return -1;
    callback->call = on_call;
    all |= PyLong_AsLong(bit);
    if (!PyObject_CallMethod(monitoring, "register_callback", "iOO", 3, bit, callback)) return -1;
  }
  return PyObject_CallMethod(monitoring, "set_events", "il", 3, all) != NULL ? 0 : -1;
}
#endif

static PyObject* start(PyObject* self, PyObject* which) {
  const char* name = PyUnicode_AsUTF8(which);
  if (name == NULL) return NULL;
  if (strcmp(name, "trace") == 0) {
    PyEval_SetTrace(on_event, Py_None);
  } else if (strcmp(name, "profile") == 0) {
    PyEval_SetProfile(on_event, Py_None);
#if PY_VERSION_HEX >= 0x030C0000
  } else if (strcmp(name, "monitoring") == 0) {
    if (start_monitoring() < 0) return NULL;
#endif
  } else {
    PyErr_SetString(PyExc_ValueError, name);
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"start", start, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "empty_hook", NULL, -1, methods};
PyMODINIT_FUNC PyInit_empty_hook(void) { return PyModule_Create(&module); }
