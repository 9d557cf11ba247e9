// The end of work on a GPU, or of the patience with it.
// C++17: included by .cu files.
#pragma once

#include <string>

#include "cuda/stream.hpp"

namespace oddrank::cuda {

// Waits until all work on `stream` is done. At the deadline it throws, and what the work holds
// (buffers, pinned memory) is abandoned together with the stream: to free it would wait.
template <class... Held>
void wait_or_abandon(Stream& stream, Deadline deadline, const char* what, Held&... held) {
  if (stream.wait(deadline)) return;
  (held.abandon(), ...);
  stream.abandon();
  throw Error(std::string(what) + ": the GPU did not finish before the deadline; " + place());
}

// After the launch of a kernel, whose errors wait to be fetched.
inline void launched(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace oddrank::cuda
