// Declares the bindings of csrc/base.
#pragma once

#include <pybind11/pybind11.h>

namespace oddrank {
void bind_base(pybind11::module_& m);
}  // namespace oddrank
