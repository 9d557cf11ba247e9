// The hooks into CPython: PyEval_SetTrace (settrace.cpp), the default up to 3.11, and
// sys.monitoring (monitoring.cpp), the default from 3.12 on.
#pragma once

#include <Python.h>

#include <string_view>

#include "trace/hooks/code_ids.hpp"

namespace oddrank::trace {

// What the tracer needs of a hook. Call all functions with the GIL.
struct Hook {
  const char* name = "";
  // Only recorded code gives events: a thread's list holds only recorded frames.
  bool sparse = false;
  // Asks for the events of a recorded code object; nullptr if they come anyway. Errors are ignored.
  void (*include)(PyCodeObject* code, Level level) = nullptr;
  // Checks whether another tool has taken the hook, and notes it. Called every 64 steps.
  void (*look)() = nullptr;
  // Hooks all running threads. Call after Tracer::start(). Returns false with a Python error.
  bool (*arm)() = nullptr;
  // Removes the hook. Call before Tracer::stop().
  void (*disarm)() = nullptr;
  // Returns a new reference to a callable for threading.settrace(): it hooks the thread that calls
  // it, also by sys.settrace(sys.gettrace()). nullptr if new threads need no hook.
  PyObject* (*trace_object)() = nullptr;
};
inline constexpr Hook kNoHook{};

const Hook& settrace_hook() noexcept;
const Hook& monitoring_hook() noexcept;  // from 3.12 on

// Returns the hook with that name; this version's default if empty; nullptr if there is none.
inline const Hook* hook_named(std::string_view name) noexcept {
#if PY_VERSION_HEX >= 0x030C0000
  if (name.empty() || name == monitoring_hook().name) return &monitoring_hook();
#endif
  return name.empty() || name == settrace_hook().name ? &settrace_hook() : nullptr;
}

}  // namespace oddrank::trace
