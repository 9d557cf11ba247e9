// What differs between versions of CPython: how to walk the frames of a thread. The only file that
// looks at PY_VERSION_HEX for it.
//
// Frames are walked by their links, never by PyFrame_GetBack(), which makes a frame object for each
// on 3.11 and later. The views below name the leading fields of structs that CPython keeps to
// itself; each version's are laid down with its ABI, and the tests compare every walk with
// sys._getframe().
#pragma once

#include <Python.h>
#include <frameobject.h>  // 3.10: what a frame is

#include <cstdint>

namespace oddrank::trace::cpython {

#if PY_VERSION_HEX < 0x030B0000
struct FrameView {
  PyObject head_;
  Py_ssize_t size_;
  FrameView* previous;
  PyCodeObject* code;
};
#elif PY_VERSION_HEX < 0x030C0000
struct FrameView {
  void* function_;
  void* globals_;
  void* builtins_;
  void* locals_;
  PyCodeObject* code;
  void* object_;
  FrameView* previous;
  const char* instruction;
};
#else
struct FrameView {
  PyCodeObject* code;
  FrameView* previous;
  void* function_;
  void* globals_;
  void* builtins_;
  void* locals_;
  void* object_;
  const char* instruction;
  int stack_top_;
  std::uint16_t return_offset_;
  char owner;
};
#endif

constexpr bool kKnown = PY_VERSION_HEX < 0x030E0000;

// A frame's identity: equal for one call of a function, and only compared.
using Frame = const FrameView*;

inline Frame frame_of(PyFrameObject* frame) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  return reinterpret_cast<Frame>(frame);
#else
  struct ObjectView {
    PyObject head_;
    PyFrameObject* back_;
    Frame frame;
  };
  return reinterpret_cast<const ObjectView*>(frame)->frame;
#endif
}

// The innermost frame of a thread that runs Python now; nullptr where there is none.
inline Frame innermost(const PyThreadState* state) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  return reinterpret_cast<Frame>(state->frame);
#elif PY_VERSION_HEX < 0x030D0000
  return reinterpret_cast<Frame>(state->cframe->current_frame);
#else
  return reinterpret_cast<Frame>(state->current_frame);
#endif
}

#if PY_VERSION_HEX >= 0x030C0000
// What PyThreadState::what_event says of an event of sys.monitoring (PY_MONITORING_EVENT_...).
constexpr int kResumes = 1;
constexpr int kYields = 3;
constexpr int kUnwinds = 12;
constexpr int kThrows = 13;

// A small int, such as a line number, without a call into libpython.
inline std::uint32_t small_number(PyObject* number) noexcept {
  const auto* digits = reinterpret_cast<const PyLongObject*>(number);
  return PyUnstable_Long_IsCompact(digits) != 0
             ? static_cast<std::uint32_t>(PyUnstable_Long_CompactValue(digits))
             : static_cast<std::uint32_t>(PyLong_AsLong(number));
}
#endif

// Whether sys._getframe() shows it. From 3.12 on C pushes frames of its own on entry, of which all
// but the links is undefined, and 3.13 a shim under __init__ that never gets to its first
// instruction.
inline bool is_python(Frame frame) noexcept {
#if PY_VERSION_HEX < 0x030C0000
  return frame != nullptr;
#else
  constexpr char kOwnedByGenerator = 1;
  constexpr char kOwnedByC = 3;
  if (frame->owner == kOwnedByC) return false;
  const PyCodeObject* code = frame->code;
  return frame->owner == kOwnedByGenerator ||
         frame->instruction >= code->co_code_adaptive + 2 * code->_co_firsttraceable;
#endif
}

inline Frame caller_of(Frame frame) noexcept {
  Frame at = frame->previous;
  while (at != nullptr && !is_python(at)) at = at->previous;
  return at;
}

// Bytes from the begin of the code to the instruction that runs.
inline std::uint32_t offset_of(Frame frame) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  const int instruction = reinterpret_cast<const PyFrameObject*>(frame)->f_lasti;
  return instruction < 0 ? 0 : static_cast<std::uint32_t>(instruction) * 2;
#else
  const std::ptrdiff_t at = frame->instruction - frame->code->co_code_adaptive;
  return at < 0 ? 0 : static_cast<std::uint32_t>(at);
#endif
}

}  // namespace oddrank::trace::cpython
