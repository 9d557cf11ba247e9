// CUDA's error codes become oddrank::Error: call, code, text, device and rank, and what to do where
// we know it. C++17: included by .cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.hpp"

namespace oddrank::cuda {

// The rank that errors of this process name; until it is set they name none.
void set_rank(int rank) noexcept;
// "device 0, rank 3": as much as is known.
std::string place();

// "no CUDA driver: ..." and what to do: why a call answered cudaErrorInsufficientDriver.
std::string driver_problem();
// "13.0" of CUDA's 13000.
std::string version_text(int version);

// Clears the runtime's last error first, so that the next, innocent call does not report it again.
// (An error that has broken the context stays: CUDA then needs a new process.)
[[noreturn]] void throw_error(cudaError_t code, const char* call);

inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw_error(code, call);
}

}  // namespace oddrank::cuda

// ODDRANK_CUDA_CHECK(cudaMalloc(&data, bytes)): the message names cudaMalloc.
#define ODDRANK_CUDA_CHECK(call) ::oddrank::cuda::check((call), #call)
