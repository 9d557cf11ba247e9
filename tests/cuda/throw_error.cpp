// Prints the message of the CUDA error whose number is given. Compiled by test_errors.py.
#include <cstdio>
#include <cstdlib>

#include "cuda/runtime.hpp"

int main(int, char** arguments) {
  try {
    oddrank::cuda::set_rank(3);
    oddrank::cuda::throw_error(static_cast<cudaError_t>(std::atoi(arguments[1])), "cudaCall(1)");
  } catch (const oddrank::Error& error) {
    std::puts(error.what());
  }
}
