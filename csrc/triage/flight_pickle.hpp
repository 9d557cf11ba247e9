// Reads a pickle of plain data: protocols 0 to 5, nothing that imports, calls or builds objects.
#pragma once

#include <string_view>

#include "triage/values.hpp"

namespace oddrank {

// Runs a pickle's opcodes on `builder`, which must have begun. Returns the root. Throws Error with
// one line if the bytes end early, are damaged, or hold an opcode that is not plain data: the line
// names the opcode and what it would do. `bytes` must outlive the values.
Value read_pickle(std::string_view bytes, Builder& builder);

}  // namespace oddrank
