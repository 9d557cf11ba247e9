// Reads code objects for the filter and the dictionary, as each version of CPython stores them, and
// names of threads and tools. Needs the GIL, runs no Python code, leaves no Python error.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "os/cpython.hpp"
#include "trace/hooks/tracer.hpp"
#include "trace/read/dictionary.hpp"

namespace oddrank::trace {

inline std::uint32_t first_line_of(const PyCodeObject* code) noexcept {
  return static_cast<std::uint32_t>(std::max(code->co_firstlineno, 0));
}

// Returns the code object's LineTable.
inline std::string lines_of(const PyCodeObject* code) noexcept {
  auto* object = reinterpret_cast<PyObject*>(const_cast<PyCodeObject*>(code));
  LineTableWriter table(first_line_of(code));
  const bool collects = PyGC_Disable() != 0;  // no finalizer in Python runs here
  PyObject* ranges = PyObject_CallMethod(object, "co_lines", nullptr);
  while (PyObject* range = ranges == nullptr ? nullptr : PyIter_Next(ranges)) {
    unsigned start = 0, end = 0;
    PyObject* line = nullptr;
    PyArg_ParseTuple(range, "IIO", &start, &end, &line);
    std::optional<std::uint32_t> number;
    if (line != Py_None) number = static_cast<std::uint32_t>(PyLong_AsLong(line));
    try {
      table.add(end - start, number);
    } catch (const std::exception&) {  // out of memory: lines of its beginning only
      Py_CLEAR(ranges);
    }
    Py_DECREF(range);
  }
  Py_XDECREF(ranges);
  if (collects) PyGC_Enable();
  PyErr_Clear();
  try {
    return table.take();
  } catch (const std::exception&) {
    return {};
  }
}

// Returns the global `key` of a frame, borrowed; nullptr if there is none.
inline PyObject* global_of(cpython::Frame frame, PyObject* key) noexcept {
  PyObject* globals = cpython::globals_of(frame);
  if (globals == nullptr || PyDict_Check(globals) == 0) return nullptr;
  return PyDict_GetItemWithError(globals, key);
}

// Returns object.__dict__[key], borrowed; nullptr if there is none. Runs no Python code, as a
// property or an overridden __getattr__ would.
inline PyObject* own_attribute(PyObject* object, PyObject* key) noexcept {
  PyObject* attributes = PyObject_GenericGetDict(object, nullptr);
  if (attributes == nullptr) return nullptr;
  PyObject* value =
      PyDict_CheckExact(attributes) == 0 ? nullptr : PyDict_GetItemWithError(attributes, key);
  Py_DECREF(attributes);  // the object keeps it alive
  return value;
}

// Returns threading._active[ident], borrowed; nullptr if it is not there (yet).
inline PyObject* registered(const PyThreadState* state) {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "threading");
  PyObject* active =
      module == nullptr ? nullptr : PyDict_GetItemString(PyModule_GetDict(module), "_active");
  if (active == nullptr || PyDict_Check(active) == 0) return nullptr;
  PyObject* key = PyLong_FromUnsignedLong(state->thread_id);
  PyObject* thread = key == nullptr ? nullptr : PyDict_GetItemWithError(active, key);
  Py_XDECREF(key);
  return thread;
}

inline std::string registered_name(const PyThreadState* state) {
  static PyObject* const attribute = PyUnicode_InternFromString("_name");
  PyObject* thread = registered(state);
  return std::string(utf8_of(thread == nullptr ? nullptr : own_attribute(thread, attribute)));
}

// Returns the name that C++ gave this thread; empty if it has only inherited the process's name.
inline std::string native_name() {
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

// Returns the __name__ in the frame's globals.
inline std::string_view module_of(cpython::Frame frame) noexcept {
  static PyObject* const key = PyUnicode_InternFromString("__name__");
  return utf8_of(global_of(frame, key));
}

// Returns the real name of the frame's module if `python -m` runs it as __main__; empty for a
// script.
inline std::string_view run_as_main(cpython::Frame frame) noexcept {
  static PyObject* const key = PyUnicode_InternFromString("__spec__");
  static PyObject* const attribute = PyUnicode_InternFromString("name");
  PyObject* spec = global_of(frame, key);
  if (spec == nullptr || spec == Py_None) return {};
  const std::string_view view = utf8_of(own_attribute(spec, attribute));
  PyErr_Clear();
  return view;
}

inline std::string_view file_of(const PyCodeObject* code) noexcept {
  return utf8_of(code->co_filename);
}

// The views are of `table`, which it fills in, and of the code object's strings: valid while it
// lives.
inline CodeFacts facts_of(const PyCodeObject* code, Level level, std::string& table) noexcept {
  CodeFacts facts;
#if PY_VERSION_HEX < 0x030B0000
  facts.name = utf8_of(code->co_name);
#else
  facts.name = utf8_of(code->co_qualname);
#endif
  facts.file = utf8_of(code->co_filename);
  // Only code recorded by lines has positions: the tables are most bytes of a code object's facts.
  if (level == Level::kLines) facts.linetable = table = lines_of(code);
  facts.first_line = first_line_of(code);
  facts.level = static_cast<std::uint32_t>(level);
  return facts;
}

#if PY_VERSION_HEX < 0x030B0000
inline std::size_t instructions_of(PyCodeObject* code) noexcept {
  return static_cast<std::size_t>(PyBytes_GET_SIZE(code->co_code)) / 2;
}
#else
// Skips inline caches (zeros in unspecialised bytecode), about half of a function. Counts exactly
// only if the result may exceed kGiant.
inline std::size_t instructions_of(PyCodeObject* code) noexcept {
  const auto units = static_cast<std::size_t>(Py_SIZE(code));
  if (units <= Filter::kGiant) return units;
  PyObject* bytes = PyCode_GetCode(code);
  if (bytes == nullptr) {
    PyErr_Clear();
    return units;
  }
  std::size_t instructions = 0;
  for (std::size_t i = 0; i < units; ++i) instructions += PyBytes_AS_STRING(bytes)[2 * i] != 0;
  Py_DECREF(bytes);
  return instructions;
}
#endif

// Makes the tracer forget the code object when it is destroyed.
#if PY_VERSION_HEX < 0x030C0000
// Stores the object's own address in an extra slot of the code object. CPython calls our function
// with it when it destroys the object, and also when the slot is overwritten: set it only once.
inline void watch_code(const PyCodeObject* code) noexcept {
  static const Py_ssize_t slot = _PyEval_RequestCodeExtraIndex([](void* destroyed) {
    if (destroyed != nullptr) Tracer::get().forget(static_cast<const PyCodeObject*>(destroyed));
  });
  auto* object = reinterpret_cast<PyObject*>(const_cast<PyCodeObject*>(code));
  void* now = nullptr;
  const bool failed = slot < 0 || _PyCode_GetExtra(object, slot, &now) != 0 ||
                      (now != object && _PyCode_SetExtra(object, slot, object) != 0);
  if (failed) PyErr_Clear();
}
#else
inline void watch_code(const PyCodeObject* /*code*/) noexcept {
  static const int watcher = PyCode_AddWatcher([](PyCodeEvent event, PyCodeObject* code) {
    if (event == PY_CODE_EVENT_DESTROY) Tracer::get().forget(code);
    return 0;
  });
  if (watcher < 0) PyErr_Clear();
}
#endif

// Returns the thread's name in threading, else its native name (autograd: pt_autograd_0); empty if
// it is not registered yet or has no name.
inline std::string thread_name(const PyThreadState* state) noexcept {
  try {
    std::string name = registered_name(state);
    PyErr_Clear();
    return name.empty() ? native_name() : name;
  } catch (const std::exception&) {
    return {};
  }
}

// Names the tool that took a hook: module.function or the type's name of a callable given to
// sys.settrace(); the name given to sys.monitoring; "nobody" for None, which only removes a hook.
inline std::string tool_name(PyObject* tool) noexcept {
  try {
    if (tool == Py_None) return "nobody";
    if (PyUnicode_Check(tool)) return std::string(utf8_of(tool));
    if (PyMethod_Check(tool)) tool = PyMethod_GET_FUNCTION(tool);
    if (PyFunction_Check(tool) == 0) return Py_TYPE(tool)->tp_name;
    const std::string module(utf8_of(PyFunction_GetModule(tool)));
    const std::string name(utf8_of(reinterpret_cast<PyFunctionObject*>(tool)->func_qualname));
    return module.empty() ? name : module + "." + name;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace oddrank::trace
