// The hooks into CPython: PyEval_SetTrace (eval_trace.cpp) everywhere, and the one by default up to
// 3.11; sys.monitoring (monitoring.cpp) from 3.12 on.
#pragma once

#include <Python.h>

#include <string_view>

#include "trace/hooks/code_ids.hpp"

namespace oddrank::trace {

// How a hook works with the tracer. All is called with the GIL.
struct Hook {
  const char* name = "";
  // Events come only from code that is recorded, so that a thread's list has only such frames.
  bool sparse = false;
  // Asks for the events of a code object that is recorded; nullptr where they come anyway. May fail
  // without an error.
  void (*include)(PyCodeObject* code, Level level) = nullptr;
  // Looks whether another tool has taken the hook and notes it; called now and then.
  void (*look)() = nullptr;
  // After Tracer::start(): hooks all threads that run. False with a Python error where it could
  // not.
  bool (*arm)() = nullptr;
  // Before Tracer::stop(): takes away what is still ours.
  void (*disarm)() = nullptr;
  // What threading.settrace() is given so that new threads are hooked; nullptr where they are
  // anyway. A new reference: a callable that hooks the thread that calls it, so that
  // sys.settrace(sys.gettrace()) keeps us.
  PyObject* (*trace_object)() = nullptr;
};
inline constexpr Hook kNoHook{};

const Hook& settrace_hook() noexcept;
const Hook& monitoring_hook() noexcept;  // from 3.12 on

// The hook of that name, or of this version where the name is empty; nullptr: there is none.
inline const Hook* hook_named(std::string_view name) noexcept {
#if PY_VERSION_HEX >= 0x030C0000
  if (name.empty() || name == monitoring_hook().name) return &monitoring_hook();
#endif
  return name.empty() || name == settrace_hook().name ? &settrace_hook() : nullptr;
}

}  // namespace oddrank::trace
