// CPython 3.12 and 3.13: C entry frames between Python frames. Included by frames.hpp only.
#pragma once

#include <Python.h>

#include <cstdint>

namespace oddrank::trace::cpython {

constexpr bool kHasMonitoring = true;

struct FrameView {
  PyCodeObject* code_;
  FrameView* previous;
  void* function_;
  PyObject* globals_;
  void* builtins_;
  void* locals_;
  void* object_;
  const char* instruction_;
  int stack_top_;
  std::uint16_t return_offset_;
  char owner_;
};

// Values of PyThreadState::what_event (PY_MONITORING_EVENT_...).
constexpr int kResumes = 1;
constexpr int kYields = 3;
constexpr int kUnwinds = 12;
constexpr int kThrows = 13;

inline PyCodeObject* code_of(const FrameView* frame) noexcept { return frame->code_; }
inline const FrameView* innermost(const PyThreadState* state) noexcept {
#if PY_VERSION_HEX < 0x030D0000
  return reinterpret_cast<const FrameView*>(state->cframe->current_frame);
#else
  return reinterpret_cast<const FrameView*>(state->current_frame);
#endif
}

}  // namespace oddrank::trace::cpython
