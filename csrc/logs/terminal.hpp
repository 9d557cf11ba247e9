// Makes a line of a log harmless for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace oddrank::logs {

// Appends a line without escape sequences, and with '?' for each control character but the tab,
// byte that is no UTF-8, and character that is invisible or changes the direction of text.
void append_for_terminal(std::string_view line, std::string& to);

}  // namespace oddrank::logs
