// Says values in one line, so that a test compares many at once: "-" is none, '' an empty text.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace oddrank {

template <class T>
void say(std::ostream& to, const T& value) {
  if constexpr (std::is_same_v<T, std::nullopt_t>) {
    to << '-';
  } else if constexpr (std::is_enum_v<T>) {
    to << +static_cast<std::underlying_type_t<T>>(value);
  } else if constexpr (requires { value.has_value(); }) {
    value.has_value() ? say(to, *value) : say(to, std::nullopt);
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    const std::string_view text = value;
    to << (text.empty() ? "''" : text);
  } else if constexpr (requires { value.load(); }) {
    to << value.load();
  } else {
    to << +value;
  }
}

template <class... T>
std::string words(const T&... values) {
  std::ostringstream to;
  const char* between = "";
  ((to << std::exchange(between, " "), say(to, values)), ...);
  return to.str();
}

// The words of each item, by members or functions of it: "1 main, 2 step".
template <class List, class... Of>
std::string each(const List& list, Of... of) {
  std::string all;
  for (const auto& item : list) {
    all += (all.empty() ? "" : ", ") + words(std::invoke(of, item)...);
  }
  return all;
}

}  // namespace oddrank
