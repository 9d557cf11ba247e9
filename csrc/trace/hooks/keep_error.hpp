// Python's error indicator out of the way while the tracer asks CPython things.
#pragma once

#include <Python.h>

namespace oddrank::trace {

// The error of whoever runs is kept aside while we ask CPython things.
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

}  // namespace oddrank::trace
