// Declares the bindings of csrc/bench that need CUDA.
#pragma once

#include <pybind11/pybind11.h>

namespace oddrank {
void bind_bench_cuda(pybind11::module_& m);
// Called by the former, after the class that it needs: its file is bind_cuda_nccl.cpp.
void bind_bench_nccl(pybind11::module_& m);
}  // namespace oddrank
