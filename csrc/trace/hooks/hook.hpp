// The hook into this version of CPython: PyEval_SetTrace up to 3.11 (eval_trace.cpp),
// sys.monitoring from 3.12 on (monitoring.cpp).
#pragma once

#include <Python.h>

#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {

// What the tracer has to know of it.
const Hook& hook() noexcept;

// After Tracer::start(): hooks the calling thread, or all of them where the version can. False with
// a Python error where it could not. Holds the GIL.
bool arm_hook();
// Before Tracer::stop(): takes away what is still ours.
void disarm_hook();

// What threading.settrace() is given so that new threads are hooked; nullptr where they are anyway.
// A new reference: a callable that hooks the thread that calls it, so that
// sys.settrace(sys.gettrace()) keeps us.
PyObject* trace_object();

}  // namespace oddrank::trace
