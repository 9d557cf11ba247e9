// Classifies calls and returns: call, resume or throw; return, yield or unwind.
#include <opcode.h>

#include "trace/hooks/settrace.hpp"

namespace oddrank::trace {

#if PY_VERSION_HEX >= 0x030C0000

// CPython makes these events from sys.monitoring's and notes which one in what_event.
Kind how_it_begins(cpython::Frame /*frame*/) noexcept {
  switch (PyThreadState_Get()->what_event) {
    case cpython::kResumes:
      return Kind::kResume;
    case cpython::kThrows:
      return Kind::kThrow;
    default:
      return Kind::kCall;
  }
}

Kind how_it_ends(cpython::Frame /*frame*/, const PyObject* result) noexcept {
  if (result == nullptr) return Kind::kUnwind;
  switch (PyThreadState_Get()->what_event) {
    case cpython::kUnwinds:  // 3.12 passes None as the result
      return Kind::kUnwind;
    case cpython::kYields:
      return Kind::kYield;
    default:
      return Kind::kReturn;
  }
}

#else

namespace {

constexpr int kGenerators = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;

std::uint8_t opcode_at(cpython::Frame frame, std::uint32_t offset) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  return static_cast<std::uint8_t>(PyBytes_AS_STRING(cpython::code_of(frame)->co_code)[offset]);
#else
  return static_cast<std::uint8_t>(cpython::code_of(frame)->co_code_adaptive[offset]);
#endif
}

}  // namespace

Kind how_it_begins(cpython::Frame frame) noexcept {
  if ((cpython::code_of(frame)->co_flags & kGenerators) == 0) return Kind::kCall;
#if PY_VERSION_HEX < 0x030B0000
  return reinterpret_cast<const PyFrameObject*>(frame)->f_lasti >= 0 ? Kind::kResume : Kind::kCall;
#else
  const std::uint32_t offset = cpython::offset_of(frame);
  const std::uint8_t opcode = opcode_at(frame, offset);
  const bool resumes = (opcode == RESUME || opcode == RESUME_QUICK) &&
                       (cpython::code_of(frame)->co_code_adaptive[offset + 1] & 3) != 0;
  return resumes ? Kind::kResume : Kind::kCall;
#endif
}

Kind how_it_ends(cpython::Frame frame, const PyObject* result) noexcept {
  if (result == nullptr) return Kind::kUnwind;
  if ((cpython::code_of(frame)->co_flags & kGenerators) == 0) return Kind::kReturn;
  const std::uint8_t opcode = opcode_at(frame, cpython::offset_of(frame));
#if PY_VERSION_HEX < 0x030B0000
  return opcode == YIELD_VALUE || opcode == YIELD_FROM ? Kind::kYield : Kind::kReturn;
#else
  return opcode == YIELD_VALUE ? Kind::kYield : Kind::kReturn;
#endif
}

#endif

}  // namespace oddrank::trace
