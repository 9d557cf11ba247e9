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

// Returns the callable `printflock`: args, sep=, end=, file=, flush=.
PyObject* make_printflock();

}  // namespace oddrank::printing
