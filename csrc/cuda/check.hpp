// Turns CUDA's error codes into oddrank::Error with call, code, text, device and rank, and with
// advice where there is one. C++17: included by .cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "os/error.hpp"

namespace oddrank::cuda {

// Sets the rank that this process's errors name.
void set_rank(int rank) noexcept;
// Returns "device 0, rank 3", or the part of it that is known.
std::string place();

// Returns "no CUDA driver: ..." with advice: the reason for cudaErrorInsufficientDriver.
std::string driver_problem();
// Returns "13.0" for CUDA's 13000.
std::string version_text(int version);

// Clears the runtime's last error, so that the next call does not report it again.
// (An error that has broken the context stays: CUDA then needs a new process.)
[[noreturn]] void throw_error(cudaError_t code, const char* call);

inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw_error(code, call);
}

}  // namespace oddrank::cuda

// ODDRANK_CUDA_CHECK(cudaMalloc(&data, bytes)): the message names cudaMalloc.
#define ODDRANK_CUDA_CHECK(call) ::oddrank::cuda::check((call), #call)
