// The callable printflock, its settings, and the streams that it may write to natively.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "printing/lock.hpp"

namespace oddrank::printing {

// Settings of printflock. All but `warned` change only under the GIL.
struct State {
  Table* table = nullptr;  // null until _core.printing_open()
  std::int64_t timeout_ms = 1000;
  std::string prefix;
  std::uint64_t mid_line = 0;  // output that this process left in the middle of a line
  std::atomic<bool> warned = false;
};
State& state() noexcept;

// A standard stream whose text we may encode and write ourselves, with the same result as its own
// write().
struct Target {
  int fd = -1;  // -1: no, go through file.write()
  bool utf8 = false;
};

// Examines each stream once, and later only checks that it is unchanged. `fd` is -1 also if the
// stream hides how it writes: a subclass, replaced methods, another file's newline.
Target find_target(PyObject* file);

// Returns whether `file` is a text file over a plain file, whose flush() is one write(2).
bool flushes_cheaply(PyObject* file);

// Returns the callable `printflock`: args, sep=, end=, file=, flush=.
PyObject* make_printflock();

}  // namespace oddrank::printing
