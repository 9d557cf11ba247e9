// What the versions of CPython have in different ways: frames, and what else one function reads.
// PY_VERSION_HEX occurs in this folder only.
//
// Follows the links between frames; PyFrame_GetBack() would make a frame object for each on 3.11
// and later. The FrameView of each pyXYZ.hpp names the leading fields of CPython's private frame
// struct, which is fixed within a version's ABI; the tests compare every walk with sys._getframe().
// A new version of Python needs such a file, a line here, and kNewestPython.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>

#include "trace/format/format.hpp"

#if PY_VERSION_HEX < 0x030B0000
#include "trace/cpython/py310.hpp"
#elif PY_VERSION_HEX < 0x030C0000
#include "trace/cpython/py311.hpp"
#elif PY_VERSION_HEX < 0x030E0000
#include "trace/cpython/py312.hpp"
#else
#include "trace/cpython/py314.hpp"
#endif

namespace oddrank::trace::cpython {

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
