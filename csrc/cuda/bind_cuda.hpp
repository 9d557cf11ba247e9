// Declares the bindings of csrc/cuda that need CUDA.
#pragma once

#include <pybind11/pybind11.h>

namespace oddrank {
void bind_cuda(pybind11::module_& m);
}
