// Helpers for plain CPython: work without the GIL, questions that keep the current Python error,
// texts as UTF-8 (the other way: to_python.hpp), our exceptions, hand-written types.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <cstddef>
#include <string_view>

#include "os/error.hpp"

namespace oddrank {

// Releases the GIL while it lives. If Python ends meanwhile, the thread stands still in the
// destructor until the process is gone, as Python itself does it from 3.14 on. Older versions end
// the thread by unwinding its stack, which aborts the process in the first function that must not
// throw.
class WithoutGil {
  template <class Call>
  static auto or_stand_still(Call call) noexcept {
    try {
      return call();
    } catch (...) {
      while (true) ::pause();
    }
  }

 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { take_gil(); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  // Runs Python's signal handlers. Returns whether one raised an exception.
  bool run_signal_handlers() noexcept {
    take_gil();
    const bool raised = or_stand_still([] { return PyErr_CheckSignals() != 0; });
    state_ = PyEval_SaveThread();
    return raised;
  }

 private:
  void take_gil() noexcept {
    or_stand_still([this] { return PyEval_RestoreThread(state_); });
  }

  PyThreadState* state_;
};

// Runs a call without the GIL and returns its result.
template <class Call>
auto without_gil(Call call) {
  const WithoutGil unlocked;
  return call();
}

// Keeps the Python error of the caller while we ask CPython things.
class KeepError {
 public:
  KeepError() { PyErr_Fetch(&type_, &value_, &trace_); }
  ~KeepError() { PyErr_Restore(type_, value_, trace_); }
  KeepError(const KeepError&) = delete;
  KeepError& operator=(const KeepError&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* trace_ = nullptr;
};

// Returns the UTF-8 of a str, valid while the str lives. Its data is null if `object` is null or no
// str, or has no UTF-8 (a lone surrogate). Leaves no Python error.
inline std::string_view utf8_of(PyObject* object) noexcept {
  Py_ssize_t size = 0;
  const char* bytes = object == nullptr || PyUnicode_Check(object) == 0
                          ? nullptr
                          : PyUnicode_AsUTF8AndSize(object, &size);
  if (bytes == nullptr) {
    PyErr_Clear();
    return {};
  }
  return {bytes, static_cast<std::size_t>(size)};
}

// Sets Python's error to oddrank.OddrankError, with the message of ours.
inline void set_oddrank_error(const Error& error) noexcept {
  PyObject* module = PyImport_ImportModule("oddrank.errors");
  PyObject* type = module == nullptr ? nullptr : PyObject_GetAttrString(module, "OddrankError");
  const std::string_view what = error.what();
  PyObject* text =
      PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "replace");
  if (type != nullptr && text != nullptr) PyErr_SetObject(type, text);
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(module);
}

// Returns the start of a hand-written type: all fields are zero but the head. An unfinished
// initializer list, as CPython writes it, gives a warning for each of about 48 fields.
inline PyTypeObject blank_static_type() {
  struct {
    PyVarObject value;
  } head = {PyVarObject_HEAD_INIT(nullptr, 0)};
  PyTypeObject type{};
  type.ob_base = head.value;
  return type;
}

}  // namespace oddrank
