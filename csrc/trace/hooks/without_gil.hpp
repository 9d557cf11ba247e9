// Work without the GIL, in threads that Python may end at its exit.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <exception>

namespace oddrank::trace {

// A thread that wants the GIL back while Python ends is ended by CPython, which unwinds its stack;
// where a frame promises not to throw, that aborts the process. Here it stands still until the
// process is gone, as from Python 3.14 on. Throws what `work` throws.
template <class Work>
void without_gil(Work work) {
  std::exception_ptr failure;
  PyThreadState* state = PyEval_SaveThread();
  try {
    work();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    while (true) ::pause();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace oddrank::trace
