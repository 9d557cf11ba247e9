// Pieces of JSON, appended to a string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace oddrank::trace {

// What stands between the quotes of a JSON string. Bytes that are no UTF-8 become U+FFFD, one for
// each; of a text longer than `most` bytes the rest is replaced by "...".
void append_escaped(std::string& to, std::string_view bytes, std::size_t most);

void append_number(std::string& to, std::int64_t number);

// Nanoseconds as microseconds, the unit of the Trace Event Format: 1234567 is 1234.567.
void append_microseconds(std::string& to, std::int64_t nanoseconds);

}  // namespace oddrank::trace
