// CPython 3.10: every frame is an object. Included by frames.hpp only.
#pragma once

#include <Python.h>
#include <frameobject.h>

#include <cstdint>

namespace oddrank::trace::cpython {

constexpr bool kHasMonitoring = false;

struct FrameView {
  PyObject head_;
  Py_ssize_t size_;
  FrameView* previous;
  PyCodeObject* code_;
};

inline PyCodeObject* code_of(const FrameView* frame) noexcept { return frame->code_; }
inline PyObject* globals_of(const FrameView* frame) noexcept {
  return reinterpret_cast<const PyFrameObject*>(frame)->f_globals;
}
inline const FrameView* frame_of(PyFrameObject* frame) noexcept {
  return reinterpret_cast<const FrameView*>(frame);
}
inline const FrameView* innermost(const PyThreadState* state) noexcept {
  return reinterpret_cast<const FrameView*>(state->frame);
}
inline PyObject*& f_trace_of(PyFrameObject* frame) noexcept { return frame->f_trace; }
inline bool is_python(const FrameView* /*frame*/) noexcept { return true; }
inline std::uint32_t offset_of(const FrameView* frame) noexcept {
  const int instruction = reinterpret_cast<const PyFrameObject*>(frame)->f_lasti;
  return instruction < 0 ? 0 : static_cast<std::uint32_t>(instruction) * 2;
}

}  // namespace oddrank::trace::cpython
