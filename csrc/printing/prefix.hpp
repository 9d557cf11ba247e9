// Puts a prefix before each line of a message.
#pragma once

#include <string>
#include <string_view>

namespace oddrank::printing {

// `text` with `prefix` before every line; before the first one only where `at_line_start`. Empty
// lines have it too; what follows the last newline is no line while it is empty.
std::string prefix_lines(std::string_view text, std::string_view prefix, bool at_line_start);

}  // namespace oddrank::printing
