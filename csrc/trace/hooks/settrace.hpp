// Internal interface of the settrace hook: its events (settrace.cpp) and the threads' slots, which
// each version of CPython has in its own way (eval_slots.cpp).
#pragma once

#include <Python.h>

#include "trace/cpython/frames.hpp"
#include "trace/format/format.hpp"

namespace oddrank::trace {

// Up to 3.11 our profile function switches the trace function on only in code whose lines are
// recorded. From 3.12 on a profile function would add the cost of every C call.
constexpr bool kProfiles = !cpython::kHasMonitoring;

// CPython calls these.
int on_trace(PyObject* self, PyFrameObject* frame, int what, PyObject* argument);
int on_profile(PyObject* self, PyFrameObject* frame, int what, PyObject* argument);

// Tell call, resume and throw apart; return, yield and unwind.
Kind how_it_begins(cpython::Frame frame) noexcept;
Kind how_it_ends(cpython::Frame frame, const PyObject* result) noexcept;

// Returns the object in our slots, which sys.gettrace() shows; the same one for all threads. Called
// as a trace function, it hooks the calling thread. Borrowed; nullptr with a Python error.
PyObject* slot_object();

// Takes the free slots of all threads. Another thread's stack becomes known at its next event.
// Returns false with a Python error.
bool take_slots();
// Releases the slots that are still ours.
void release_slots();
// Takes the calling thread's slots and reads its stack. Returns false with a Python error.
bool take_this_thread();
// Releases the calling thread's slot if it still calls us after release_slots().
void release_this_thread();
// Returns whether the calling thread's trace slot is ours, and notes a change.
bool is_ours(PyThreadState* state) noexcept;
// Audit hook: runs before a slot changes.
int on_audit(const char* event, PyObject* args, void* unused);

}  // namespace oddrank::trace
