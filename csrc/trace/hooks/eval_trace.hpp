// Parts of the settrace hook (eval_trace.cpp), for each other: events, and the slots of threads.
#pragma once

#include <Python.h>

#include "trace/hooks/cpython.hpp"
#include "trace/record/format.hpp"

namespace oddrank::trace {

// Up to 3.11 a profile function may switch the trace function on and off: lines are then asked for
// only in code whose lines are recorded. Above, it would add the calls of all C functions.
constexpr bool kProfiles = PY_VERSION_HEX < 0x030C0000;

// The functions that CPython calls.
int on_trace(PyObject* self, PyFrameObject* frame, int what, PyObject* argument);
int on_profile(PyObject* self, PyFrameObject* frame, int what, PyObject* argument);

Kind how_it_begins(cpython::Frame frame) noexcept;
Kind how_it_ends(cpython::Frame frame, const PyObject* result) noexcept;

// What stands in the slots beside them, as sys.gettrace() shows it: called as a trace function, it
// makes the thread ours. There is one. Borrowed; nullptr with a Python error.
PyObject* slot_object();

// Takes the slots of all threads that run, as far as they are free; what they stand in is known at
// their next event. False with a Python error.
bool take_slots();
// Gives back what is still ours.
void release_slots();
// The calling thread's, and its stack at once.
bool take_this_thread();
// A thread that still calls us after release_slots().
void release_this_thread();
// Notes who has the calling thread's trace slot; whether it is we.
bool is_ours(PyThreadState* state) noexcept;
// Before somebody takes a slot: he may be another tool.
int on_audit(const char* event, PyObject* args, void* unused);

}  // namespace oddrank::trace
