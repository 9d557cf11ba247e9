// oddrank._torch: the code that needs libtorch, built for one minor version. A list of its parts
// and nothing else. In plain CPython: pybind11 takes seconds to compile, for two functions.
#include <Python.h>

namespace oddrank {
// Defined in trace/torch/bind_torch.cpp. Returns -1 with a Python error, else 0.
int bind_collectives(PyObject* module);

namespace {

int fill(PyObject* module) {
  PyObject* info =
      Py_BuildValue("{ssssssssssss}", "compiler", ODDRANK_COMPILER, "flags", ODDRANK_COMPILER_FLAGS,
                    "cmake", ODDRANK_CMAKE_VERSION, "version", ODDRANK_VERSION, "torch",
                    ODDRANK_TORCH_VERSION, "proven", ODDRANK_TORCH_PROVEN);
  const bool done = info != nullptr && PyModule_AddObjectRef(module, "build_info", info) == 0;
  Py_XDECREF(info);
  return done ? bind_collectives(module) : -1;
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(&fill)}, {0, nullptr}};

PyModuleDef definition = [] {
  PyModuleDef made{};
  made.m_base = PyModuleDef_HEAD_INIT;
  made.m_name = "oddrank._torch";
  made.m_doc =
      "oddrank's part for torch: the collective recorder. Use the functions of "
      "`oddrank.trace.collectives` instead.";
  made.m_slots = slots;
  return made;
}();

}  // namespace
}  // namespace oddrank

PyMODINIT_FUNC PyInit__torch() { return PyModuleDef_Init(&oddrank::definition); }
