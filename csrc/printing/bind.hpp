// Declares the bindings of csrc/printing.
#pragma once

#include <pybind11/pybind11.h>

namespace oddrank {
void bind_printing(pybind11::module_& m);
}
