// Asks code objects, in the way of each version.
#include "trace/hooks/code_facts.hpp"

#include <algorithm>

#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

// UTF-8 of a str that stays alive; never raises.
std::string_view view_of(PyObject* text) noexcept {
  Py_ssize_t size = 0;
  const char* bytes = text == nullptr || PyUnicode_Check(text) == 0
                          ? nullptr
                          : PyUnicode_AsUTF8AndSize(text, &size);
  if (bytes == nullptr) {
    PyErr_Clear();
    return {};
  }
  return {bytes, static_cast<std::size_t>(size)};
}

std::string_view view_of_bytes(PyObject* bytes) noexcept {
  if (bytes == nullptr || PyBytes_Check(bytes) == 0) return {};
  return {PyBytes_AS_STRING(bytes), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

// What a frame's module has under a name; borrowed.
PyObject* global_of(cpython::Frame frame, PyObject* key) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  PyObject* globals = reinterpret_cast<const PyFrameObject*>(frame)->f_globals;
#else
  auto* globals = static_cast<PyObject*>(frame->globals_);
#endif
  if (globals == nullptr || PyDict_Check(globals) == 0) return nullptr;
  return PyDict_GetItemWithError(globals, key);
}

}  // namespace

std::string_view module_of(cpython::Frame frame) noexcept {
  static PyObject* const key = PyUnicode_InternFromString("__name__");
  return view_of(global_of(frame, key));
}

std::string_view run_as_main(cpython::Frame frame) noexcept {
  static PyObject* const key = PyUnicode_InternFromString("__spec__");
  static PyObject* const attribute = PyUnicode_InternFromString("name");
  PyObject* spec = global_of(frame, key);
  if (spec == nullptr || spec == Py_None) return {};
  PyObject* name = PyObject_GenericGetAttr(spec, attribute);
  const std::string_view view = view_of(name);
  Py_XDECREF(name);  // the spec keeps it
  PyErr_Clear();
  return view;
}

std::string_view file_of(const PyCodeObject* code) noexcept { return view_of(code->co_filename); }

CodeFacts facts_of(const PyCodeObject* code, Level level) noexcept {
  CodeFacts facts;
#if PY_VERSION_HEX < 0x030B0000
  facts.name = view_of(code->co_name);
#else
  facts.name = view_of(code->co_qualname);
#endif
  facts.file = view_of(code->co_filename);
  facts.linetable = view_of_bytes(code->co_linetable);
  facts.first_line = static_cast<std::uint32_t>(std::max(code->co_firstlineno, 0));
  facts.level = static_cast<std::uint32_t>(level);
  return facts;
}

#if PY_VERSION_HEX < 0x030B0000
std::size_t instructions_of(PyCodeObject* code) noexcept {
  return static_cast<std::size_t>(PyBytes_GET_SIZE(code->co_code)) / 2;
}
#else
// Not the inline caches between them, which are zeros where nothing has been specialised: about
// half of a function. Only counted where it matters.
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
// A slot of every code object that CPython hands to a function as it destroys the object. It holds
// the object's own address.
void watch_code(const PyCodeObject* code) noexcept {
  static const Py_ssize_t slot = _PyEval_RequestCodeExtraIndex([](void* destroyed) {
    if (destroyed != nullptr) Tracer::get().forget(static_cast<const PyCodeObject*>(destroyed));
  });
  auto* object = reinterpret_cast<PyObject*>(const_cast<PyCodeObject*>(code));
  if (slot < 0 || _PyCode_SetExtra(object, slot, object) != 0) PyErr_Clear();
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

}  // namespace oddrank::trace
