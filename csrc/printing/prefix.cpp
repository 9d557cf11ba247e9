// Puts a prefix before each line of a message.
#include "printing/prefix.hpp"

#include <algorithm>

namespace oddrank::printing {

std::string prefix_lines(std::string_view text, std::string_view prefix, bool at_line_start) {
  std::string out;
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  out.reserve(text.size() + lines * prefix.size());
  while (!text.empty()) {
    if (at_line_start) out += prefix;
    const std::size_t end = text.find('\n');
    const std::size_t size = end == std::string_view::npos ? text.size() : end + 1;
    out += text.substr(0, size);
    text.remove_prefix(size);
    at_line_start = true;
  }
  return out;
}

}  // namespace oddrank::printing
