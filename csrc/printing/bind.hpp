// Declares the bindings of csrc/printing.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "printing/layout.hpp"

namespace oddrank {

void bind_printing(pybind11::module_& m);

namespace printing {

// What printflock needs on every call; written under the GIL.
struct State {
  Table* table = nullptr;  // null until _core.printing_open()
  std::int64_t timeout_ms = 1000;
  std::string prefix;
  std::uint64_t mid_line = 0;  // the output that this process left in the middle of a line
  bool warned = false;
};
State& state() noexcept;

// A standard stream whose text can be encoded and written here with the result that its own
// write() would have.
struct Target {
  int fd = -1;  // -1: no, go through file.write()
  bool utf8 = false;
};

// Looks once at each stream and afterwards only whether it is still as it was. -1 also for what
// cannot be known from outside: a subclass, replaced methods, the newline of other files.
Target find_target(PyObject* file);

// True for a text file over a plain file, where flush() means write(2) and nothing else.
bool flushes_cheaply(PyObject* file);

// The callable `printflock`: args, sep=, end=, file=, flush=.
PyObject* make_printflock();

}  // namespace printing
}  // namespace oddrank
