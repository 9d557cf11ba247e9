// Reads code objects and modules, as each version of CPython stores them, and threading's table.
#include "trace/cpython/code.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

#include "os/cpython.hpp"
#include "trace/hooks/tracer.hpp"
#include "trace/read/dictionary.hpp"

namespace oddrank::trace {
namespace {

std::string_view view_of_bytes(PyObject* bytes) noexcept {
  if (bytes == nullptr || PyBytes_Check(bytes) == 0) return {};
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

// Returns the code object's line table; from 3.11 on without columns, in `table`.
std::string_view lines_of(const PyCodeObject* code, [[maybe_unused]] std::string& table) noexcept {
  const std::string_view whole = view_of_bytes(code->co_linetable);
#if PY_VERSION_HEX >= 0x030B0000
  try {
    const auto first = static_cast<std::uint32_t>(std::max(code->co_firstlineno, 0));
    const std::span bytes(reinterpret_cast<const std::uint8_t*>(whole.data()), whole.size());
    return table = LineTable(PY_VERSION_HEX, bytes, first).without_columns(first);
  } catch (const std::exception&) {
    // Out of memory: keep the columns.
  }
#endif
  return whole;
}

// Returns the global `key` of a frame, borrowed; nullptr if there is none.
PyObject* global_of(cpython::Frame frame, PyObject* key) noexcept {
  PyObject* globals = cpython::globals_of(frame);
  if (globals == nullptr || PyDict_Check(globals) == 0) return nullptr;
  return PyDict_GetItemWithError(globals, key);
}

// Returns object.__dict__[key], borrowed; nullptr if there is none. Runs no Python code, as a
// property or an overridden __getattr__ would.
PyObject* own_attribute(PyObject* object, PyObject* key) noexcept {
  PyObject* attributes = PyObject_GenericGetDict(object, nullptr);
  if (attributes == nullptr) return nullptr;
  PyObject* value =
      PyDict_CheckExact(attributes) == 0 ? nullptr : PyDict_GetItemWithError(attributes, key);
  Py_DECREF(attributes);  // the object keeps it alive
  return value;
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
  return std::string(utf8_of(thread == nullptr ? nullptr : own_attribute(thread, attribute)));
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

std::string_view module_of(cpython::Frame frame) noexcept {
  static PyObject* const key = PyUnicode_InternFromString("__name__");
  return utf8_of(global_of(frame, key));
}

std::string_view run_as_main(cpython::Frame frame) noexcept {
  static PyObject* const key = PyUnicode_InternFromString("__spec__");
  static PyObject* const attribute = PyUnicode_InternFromString("name");
  PyObject* spec = global_of(frame, key);
  if (spec == nullptr || spec == Py_None) return {};
  const std::string_view view = utf8_of(own_attribute(spec, attribute));
  PyErr_Clear();
  return view;
}

bool is_module(const PyCodeObject* code) noexcept { return utf8_of(code->co_name) == "<module>"; }

void for_each_module(const std::function<void(std::string_view, std::string_view)>& see) {
  static PyObject* const file_key = PyUnicode_InternFromString("__file__");
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* name = nullptr;
  PyObject* module = nullptr;
  Py_ssize_t at = 0;
  // Read the modules' dictionaries directly: an attribute access would load a lazy module.
  while (PyDict_Next(modules, &at, &name, &module) != 0) {
    if (PyModule_Check(module) == 0) continue;
    PyObject* file = PyDict_GetItemWithError(PyModule_GetDict(module), file_key);
    if (file != nullptr && file != Py_None) see(utf8_of(name), utf8_of(file));
    PyErr_Clear();
  }
}

std::string_view file_of(const PyCodeObject* code) noexcept { return utf8_of(code->co_filename); }

CodeFacts facts_of(const PyCodeObject* code, Level level, std::string& table) noexcept {
  CodeFacts facts;
#if PY_VERSION_HEX < 0x030B0000
  facts.name = utf8_of(code->co_name);
#else
  facts.name = utf8_of(code->co_qualname);
#endif
  facts.file = utf8_of(code->co_filename);
  // Only code recorded by lines has positions: the tables are most bytes of a code object's facts.
  if (level == Level::kLines) facts.linetable = lines_of(code, table);
  facts.first_line = static_cast<std::uint32_t>(std::max(code->co_firstlineno, 0));
  facts.level = static_cast<std::uint32_t>(level);
  return facts;
}

#if PY_VERSION_HEX < 0x030B0000
std::size_t instructions_of(PyCodeObject* code) noexcept {
  return static_cast<std::size_t>(PyBytes_GET_SIZE(code->co_code)) / 2;
}
#else
// Skips inline caches (zeros in unspecialised bytecode), about half of a function. Counts exactly
// only if the result may exceed kGiant.
std::size_t instructions_of(PyCodeObject* code) noexcept {
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

#if PY_VERSION_HEX < 0x030C0000
// Stores the object's own address in an extra slot of the code object. CPython calls our function
// with it when it destroys the object, and also when the slot is overwritten: set it only once.
void watch_code(const PyCodeObject* code) noexcept {
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
void watch_code(const PyCodeObject* /*code*/) noexcept {
  static const int watcher = PyCode_AddWatcher([](PyCodeEvent event, PyCodeObject* code) {
    if (event == PY_CODE_EVENT_DESTROY) Tracer::get().forget(code);
    return 0;
  });
  if (watcher < 0) PyErr_Clear();
}
#endif

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
