// CPython 3.14: a frame's code is a tagged reference. Included by frames.hpp only.
#pragma once

#include <Python.h>

#include <cstdint>

namespace oddrank::trace::cpython {

constexpr bool kHasMonitoring = true;

struct FrameView {
  std::uintptr_t executable_;  // the low bits are tags
  FrameView* previous;
  std::uintptr_t function_;
  PyObject* globals_;
  void* builtins_;
  void* locals_;
  void* object_;
  const char* instruction_;
  void* stack_pointer_;
  std::uint16_t return_offset_;
  char owner_;
};

// Values of PyThreadState::what_event (PY_MONITORING_EVENT_...).
constexpr int kResumes = 1;
constexpr int kYields = 3;
constexpr int kUnwinds = 13;
constexpr int kThrows = 14;

inline PyCodeObject* code_of(const FrameView* frame) noexcept {
  constexpr std::uintptr_t kTags = 7;
  return reinterpret_cast<PyCodeObject*>(frame->executable_ & ~kTags);
}
inline const FrameView* innermost(const PyThreadState* state) noexcept {
  return reinterpret_cast<const FrameView*>(state->current_frame);
}

}  // namespace oddrank::trace::cpython
