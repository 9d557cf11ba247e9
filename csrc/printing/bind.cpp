// Bindings of csrc/printing: translate types, release the GIL; no logic.
#include "printing/bind.hpp"

namespace oddrank {
void bind_printing(pybind11::module_&) {}
}  // namespace oddrank
