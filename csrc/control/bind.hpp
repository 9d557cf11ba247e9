// Declares the bindings of csrc/control.
#pragma once

#include <pybind11/pybind11.h>

#include "control/laps.hpp"

namespace oddrank {
void bind_control(pybind11::module_& m);
void bind_laps(pybind11::module_& m);
pybind11::object make_laps(control::Laps laps);
}  // namespace oddrank
