// Reads JSON into values: the form that torch's debug server and _dump_fr_trace_json() give.
#pragma once

#include <string_view>

#include "triage/values.hpp"

namespace oddrank {

// Returns the root of a JSON text. `builder` must have begun; its stack replaces recursion. Throws
// Error with one line if the text ends early or is no JSON. `text` must outlive the values.
Value read_json(std::string_view text, Builder& builder);

}  // namespace oddrank
