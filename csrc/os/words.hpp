// Tables of texts, written as one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace oddrank {

// Splits a text. It does not compile if there are not so many parts, or one is empty.
template <std::size_t kCount>
consteval std::array<std::string_view, kCount> split(std::string_view text, char at = ' ') {
  std::array<std::string_view, kCount> parts;
  if (text.ends_with(at)) throw "the last part is empty";
  for (std::string_view& part : parts) {
    part = text.substr(0, text.find(at));
    if (part.empty()) throw "too few parts";
    text.remove_prefix(std::min(part.size() + 1, text.size()));
  }
  if (!text.empty()) throw "too many parts";
  return parts;
}

}  // namespace oddrank
