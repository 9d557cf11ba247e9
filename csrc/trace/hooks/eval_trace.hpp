// The hook of CPython 3.10 and 3.11, and of hook="settrace" above: PyEval_SetTrace.
#pragma once

#include <Python.h>

namespace oddrank::trace {

// Hooks the calling thread; other threads call the trace object when they begin (threading.settrace
// has it). Holds the GIL. False with a Python error where CPython refused.
//
// Where the profile slot of the thread is free it is taken too: call and return come to it, and it
// takes the trace function away while code runs of which no lines are wanted. Such code then costs
// what an empty profile function costs.
bool hook_this_thread();
// Takes both away, where they are still ours.
void unhook_this_thread();
// What sys.gettrace() answers: a callable that hooks the thread that calls it, so that
// sys.settrace(sys.gettrace()) keeps us. A new reference.
PyObject* trace_object();

}  // namespace oddrank::trace
