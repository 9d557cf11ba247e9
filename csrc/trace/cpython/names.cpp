// Reads names of threads from threading's table and of tools from functions.
#include "trace/cpython/names.hpp"

#include <pthread.h>

#include <array>
#include <cstdio>

namespace oddrank::trace {
namespace {

std::string text_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* bytes = text == nullptr || PyUnicode_Check(text) == 0
                          ? nullptr
                          : PyUnicode_AsUTF8AndSize(text, &size);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<std::size_t>(size));
}

// Returns threading._active[ident], borrowed; nullptr if it is not there (yet).
PyObject* registered(const PyThreadState* state) {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "threading");
  PyObject* active =
      module == nullptr ? nullptr : PyDict_GetItemString(PyModule_GetDict(module), "_active");
  if (active == nullptr || PyDict_Check(active) == 0) return nullptr;
  PyObject* key = PyLong_FromUnsignedLong(state->thread_id);
  PyObject* thread = key == nullptr ? nullptr : PyDict_GetItemWithError(active, key);
  Py_XDECREF(key);
  return thread;
}

std::string registered_name(const PyThreadState* state) {
  static PyObject* const attribute = PyUnicode_InternFromString("_name");
  PyObject* thread = registered(state);
  // Generic: an override in a subclass of Thread would run Python code.
  PyObject* name = thread == nullptr ? nullptr : PyObject_GenericGetAttr(thread, attribute);
  std::string text = text_of(name);
  Py_XDECREF(name);
  return text;
}

// Returns the name that C++ gave this thread; empty if it has only inherited the process's name.
std::string native_name() {
  std::array<char, 32> own{};
  std::array<char, 32> process{};
  if (::pthread_getname_np(::pthread_self(), own.data(), own.size()) != 0) return {};
  if (FILE* file = std::fopen("/proc/self/comm", "re"); file != nullptr) {
    const std::size_t got = std::fread(process.data(), 1, process.size() - 1, file);
    std::fclose(file);
    if (got > 0 && process[got - 1] == '\n') process[got - 1] = 0;
  }
  return std::string(own.data()) == process.data() ? std::string() : std::string(own.data());
}

}  // namespace

std::string thread_name(const PyThreadState* state) noexcept {
  try {
    std::string name = registered_name(state);
    PyErr_Clear();
    return name.empty() ? native_name() : name;
  } catch (const std::exception&) {
    return {};
  }
}

std::string tool_name(PyObject* tool) noexcept {
  try {
    if (tool == Py_None) return "nobody";
    if (PyUnicode_Check(tool)) return text_of(tool);
    if (PyMethod_Check(tool)) tool = PyMethod_GET_FUNCTION(tool);
    if (PyFunction_Check(tool) == 0) return Py_TYPE(tool)->tp_name;
    const std::string module = text_of(PyFunction_GetModule(tool));
    const std::string name = text_of(reinterpret_cast<PyFunctionObject*>(tool)->func_qualname);
    PyErr_Clear();
    return module.empty() ? name : module + "." + name;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace oddrank::trace
