// Takes texts apart by patterns, which the compiler turns into code as good as hand-written.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "logs/raw_text.hpp"

namespace oddrank::logs {

constexpr std::size_t kLongestPrefix = 256;  // bytes of one prefix

// For each byte whether names of hosts, roles and pods hold it.
constexpr std::array<bool, 256> kNameBytes = [] {
  std::array<bool, 256> names{};
  for (std::size_t byte = 0; byte < names.size(); ++byte) {
    const auto c = static_cast<char>(byte);
    names[byte] = is_letter(c) || is_digit(c) || c == '.' || c == '_' || c == '-';
  }
  return names;
}();

constexpr bool is_name(char c) { return kNameBytes[static_cast<unsigned char>(c)]; }

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <class Is>
std::string_view take_while(std::string_view& text, Is is) {
  std::size_t end = 0;
  while (end < text.size() && end < kLongestPrefix && is(text[end])) ++end;
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

// Takes a number of as many digits at the most, and no more.
inline bool take_digits(std::string_view& text, std::int64_t& number, std::size_t most) {
  std::size_t end = 0;
  std::int64_t value = 0;
  while (end < text.size() && is_digit(text[end])) {
    if (end == most) return false;
    value = value * 10 + (text[end++] - '0');
  }
  number = value;
  text.remove_prefix(end);
  return end > 0;
}

// Takes a number of 63 bits, or a hexadecimal one of 64.
inline bool take_number(std::string_view& text, std::uint64_t& number, int base = 10) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value, base);
  if (error != std::errc() || (base == 10 && value > INT64_MAX)) return false;
  number = value;
  text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
  return true;
}

template <std::size_t kSize>
struct Pattern {
  char text[kSize]{};
  consteval Pattern(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }
  // Returns how many bytes from there on stand for themselves. No view: gcc's sanitizers take no
  // address of a template's argument for a constant.
  constexpr std::size_t run(std::size_t at) const {
    std::size_t end = at;
    while (end + 1 < kSize && text[end] != '%') ++end;
    return end - at;
  }
};

// Takes a part of a kind, "n", "d", "7", "=2", into `out`.
template <char kKind, char kDigits>
bool take_part(std::string_view& text, auto& out) {
  if constexpr (kKind == 'n') {
    return !(out = take_while(text, is_name)).empty();
  } else if constexpr (kKind == 'u' || kKind == 'x') {
    return take_number(text, out, kKind == 'x' ? 16 : 10);
  } else if constexpr (kKind == '=') {
    const std::size_t before = text.size();
    return take_digits(text, out, kDigits - '0') && before - text.size() == kDigits - '0';
  } else {
    return take_digits(text, out, kKind == 'd' ? 10 : kKind - '0');
  }
}

template <Pattern kPattern, std::size_t kAt, class... Outs>
bool take_from(std::string_view& text, Outs&... outs);

template <Pattern kPattern, std::size_t kAt>
bool take_parts(std::string_view& text, auto& out, auto&... others) {
  constexpr char kKind = kPattern.text[kAt + 1];
  return take_part<kKind, kPattern.text[kAt + 2]>(text, out) &&
         take_from<kPattern, kAt + (kKind == '=' ? 3 : 2)>(text, others...);
}

template <Pattern kPattern, std::size_t kAt, class... Outs>
bool take_from(std::string_view& text, Outs&... outs) {
  constexpr std::size_t kRun = kPattern.run(kAt);
  if constexpr (kAt + 1 == sizeof kPattern.text) {
    return true;
  } else if constexpr (kRun > 0) {
    if (text.size() < kRun || std::memcmp(text.data(), kPattern.text + kAt, kRun) != 0)
      return false;
    text.remove_prefix(kRun);
    return take_from<kPattern, kAt + kRun>(text, outs...);
  } else if constexpr (kPattern.text[kAt + 1] == 'N') {
    return !take_while(text, is_name).empty() && take_from<kPattern, kAt + 2>(text, outs...);
  } else {
    return take_parts<kPattern, kAt>(text, outs...);
  }
}

// Takes a pattern's match from the front of a text; false, and takes nothing, if it does not fit;
// `outs` may hold the first parts. %7: a number of up to 7 digits; %=2: of just 2; %d: of up to 10;
// %u, %x: see take_number(); %n: a name; %N: a name that is not kept; all else stands for itself.
template <Pattern kPattern, class... Outs>
bool take(std::string_view& text, Outs&... outs) {
  std::string_view left = text;
  if (!take_from<kPattern, 0>(left, outs...)) return false;
  text = left;
  return true;
}

}  // namespace oddrank::logs
