// Declares the bindings of csrc/bench that need CUDA.
#pragma once

#include <pybind11/pybind11.h>

namespace oddrank {
void bind_bench_cuda(pybind11::module_& m);
}
