// The differences between versions of CPython: frames, and what else one function reads.
// PY_VERSION_HEX occurs in this folder only.
//
// Follows the links between frames; PyFrame_GetBack() would make a frame object for each on 3.11
// and later. Each FrameView names the leading fields of CPython's private frame struct, which is
// fixed within a version's ABI; the tests compare every walk with sys._getframe(). A new version of
// Python needs one here, and kNewestPython.
#pragma once

#include <Python.h>
#include <frameobject.h>

#include <cstddef>
#include <cstdint>

#include "trace/format/format.hpp"

namespace oddrank::trace::cpython {

#if PY_VERSION_HEX < 0x030B0000  // CPython 3.10: every frame is an object.

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
inline bool is_python(const FrameView* /*frame*/) noexcept { return true; }
inline std::uint32_t offset_of(const FrameView* frame) noexcept {
  const int instruction = reinterpret_cast<const PyFrameObject*>(frame)->f_lasti;
  return instruction < 0 ? 0 : static_cast<std::uint32_t>(instruction) * 2;
}

#elif PY_VERSION_HEX < 0x030C0000  // CPython 3.11: frames are structs on a stack of their own.

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
inline bool is_python(const FrameView* /*frame*/) noexcept { return true; }

#elif PY_VERSION_HEX < 0x030E0000  // CPython 3.12 and 3.13: C entry frames between Python frames.

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

inline PyCodeObject* code_of(const FrameView* frame) noexcept { return frame->code_; }
inline const FrameView* innermost(const PyThreadState* state) noexcept {
#if PY_VERSION_HEX < 0x030D0000
  return reinterpret_cast<const FrameView*>(state->cframe->current_frame);
#else
  return reinterpret_cast<const FrameView*>(state->current_frame);
#endif
}

#else  // CPython 3.14 and 3.15: a frame's code is a tagged reference.

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

inline PyCodeObject* code_of(const FrameView* frame) noexcept {
  constexpr std::uintptr_t kTags = 7;
  return reinterpret_cast<PyCodeObject*>(frame->executable_ & ~kTags);
}
inline const FrameView* innermost(const PyThreadState* state) noexcept {
  return reinterpret_cast<const FrameView*>(state->current_frame);
}

#endif

constexpr std::uint32_t kVersion = PY_VERSION_HEX;  // sys.hexversion
constexpr bool kKnown = kVersion >> 16 <= kNewestPython;
#ifdef Py_GIL_DISABLED
constexpr bool kHasGil = false;
#else
constexpr bool kHasGil = true;
#endif

// Identifies a frame during one call.
using Frame = const FrameView*;

#if PY_VERSION_HEX >= 0x030B0000

inline PyObject* globals_of(Frame frame) noexcept { return frame->globals_; }

inline Frame frame_of(PyFrameObject* frame) noexcept {
  struct ObjectView {
    PyObject head_;
    PyFrameObject* back_;
    Frame frame;
  };
  return reinterpret_cast<const ObjectView*>(frame)->frame;
}

// Returns the offset in bytes of the running instruction in its code.
inline std::uint32_t offset_of(Frame frame) noexcept {
  const std::ptrdiff_t at = frame->instruction_ - code_of(frame)->co_code_adaptive;
  return at < 0 ? 0 : static_cast<std::uint32_t>(at);
}

#endif
#if PY_VERSION_HEX >= 0x030C0000

constexpr char kOwnedByGenerator = 1;

inline bool is_generators(Frame frame) noexcept { return frame->owner_ == kOwnedByGenerator; }

// Whether sys._getframe() shows the frame. It hides the entry frames that C pushes, of which only
// the links are defined, and from 3.13 on a shim under __init__ that never reaches its first
// instruction.
inline bool is_python(Frame frame) noexcept {
  constexpr char kOwnedByInterpreter = 3;  // larger values: by the C stack
  if (frame->owner_ >= kOwnedByInterpreter) return false;
  const PyCodeObject* code = code_of(frame);
  return frame->owner_ == kOwnedByGenerator ||
         frame->instruction_ >= code->co_code_adaptive + 2 * code->_co_firsttraceable;
}

#else

inline bool is_generators(Frame /*frame*/) noexcept { return false; }

#endif

inline Frame caller_of(Frame frame) noexcept {
  Frame at = frame->previous;
  while (at != nullptr && !is_python(at)) at = at->previous;
  return at;
}

// Returns the value of a small int (a line number); no call into libpython if it is compact.
inline std::uint32_t small_number(PyObject* number) noexcept {
#if PY_VERSION_HEX >= 0x030C0000
  const auto* digits = reinterpret_cast<const PyLongObject*>(number);
  if (PyUnstable_Long_IsCompact(digits) != 0) {
    return static_cast<std::uint32_t>(PyUnstable_Long_CompactValue(digits));
  }
#endif
  return static_cast<std::uint32_t>(PyLong_AsLong(number));
}

// Calls `see` with the state of each thread of this interpreter.
template <class See>
void each_thread(See see) {
  PyThreadState* state = PyInterpreterState_ThreadHead(PyThreadState_Get()->interp);
  for (; state != nullptr; state = PyThreadState_Next(state)) see(state);
}

}  // namespace oddrank::trace::cpython
