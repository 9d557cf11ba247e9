// Bindings of csrc/control: translate types, release the GIL; no logic.
#include "control/bind.hpp"

namespace oddrank {
void bind_control(pybind11::module_&) {}
}  // namespace oddrank
