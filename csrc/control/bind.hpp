// Declares the bindings of csrc/control.
#pragma once

#include <pybind11/pybind11.h>

namespace oddrank {
void bind_control(pybind11::module_& m);
}
