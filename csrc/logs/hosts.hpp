// Tells names of hosts from words, files and values in front of a colon.
#pragma once

#include <string_view>

namespace oddrank::logs {

// Returns whether a name in front of ": " or ":3: " may be a host: it has a digit. With capitals
// or '_' it has a number at the end, behind '-' or '_': DGX-07, node_7.
bool may_be_host(std::string_view name);

// Returns whether a text is a number and nothing else: "conv1: 0.3" names a value, no host.
bool is_value(std::string_view text);

}  // namespace oddrank::logs
