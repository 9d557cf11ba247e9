// Declares the bindings of csrc/control.
#pragma once

#include <pybind11/pybind11.h>

#include "control/timestamps.hpp"

namespace oddrank {
void bind_timestamps(pybind11::module_& m);
pybind11::object make_timestamps(control::Timestamps timestamps);
}  // namespace oddrank
