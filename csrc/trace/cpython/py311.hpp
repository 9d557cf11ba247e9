// CPython 3.11: frames are structs on a stack of their own. Included by frames.hpp only.
#pragma once

#include <Python.h>

#include <cstdint>

namespace oddrank::trace::cpython {

constexpr bool kHasMonitoring = false;

struct FrameView {
  void* function_;
  PyObject* globals_;
  void* builtins_;
  void* locals_;
  PyCodeObject* code_;
  void* object_;
  FrameView* previous;
  const char* instruction_;
};

inline PyCodeObject* code_of(const FrameView* frame) noexcept { return frame->code_; }
inline const FrameView* innermost(const PyThreadState* state) noexcept {
  return reinterpret_cast<const FrameView*>(state->cframe->current_frame);
}
inline PyObject*& f_trace_of(PyFrameObject* frame) noexcept {
  struct ObjectView {
    PyObject head_;
    PyFrameObject* back_;
    FrameView* frame_;
    PyObject* trace;
  };
  return reinterpret_cast<ObjectView*>(frame)->trace;
}
inline bool is_python(const FrameView* /*frame*/) noexcept { return true; }

}  // namespace oddrank::trace::cpython
