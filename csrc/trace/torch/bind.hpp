// Declares the bindings of csrc/trace/torch.
#pragma once

#include <pybind11/pybind11.h>

namespace oddrank {
void bind_collectives(pybind11::module_& m);
}
