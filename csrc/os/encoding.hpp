// UTF-8, hexadecimal digits, fixed fields, tables of texts and ranges of numbers, for all that
// reads and writes texts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace oddrank {

// Returns the length of the UTF-8 character at the front, and its code; 0 if there is none. Takes
// surrogates, but nothing longer than needed and nothing beyond U+10FFFF.
inline std::size_t utf8_character(std::string_view text, std::uint32_t& code) noexcept {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  code = first;
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xc2   ? 0
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf5 ? 4
                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  code = first & (0x7fU >> length);
  for (std::size_t at = 1; at < length; ++at) {
    const auto next = static_cast<unsigned char>(text[at]);
    if ((next & 0xc0) != 0x80) return 0;
    code = code << 6 | (next & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return code < kLeast[length] || code > 0x10ffff ? 0 : length;
}

constexpr bool is_surrogate(std::uint32_t code) noexcept { return code >= 0xd800 && code < 0xe000; }

// Calls `put` with each byte of a character's UTF-8.
template <class Put>
void put_utf8(std::uint32_t code, Put put) {
  const auto tail = [&](unsigned shift) { put(static_cast<char>(0x80 | (code >> shift & 0x3f))); };
  if (code < 0x80) {
    put(static_cast<char>(code));
  } else if (code < 0x800) {
    put(static_cast<char>(0xc0 | code >> 6));
  } else if (code < 0x10000) {
    put(static_cast<char>(0xe0 | code >> 12));
  } else {
    put(static_cast<char>(0xf0 | code >> 18));
    tail(12);
  }
  if (code >= 0x800) tail(6);
  if (code >= 0x80) tail(0);
}

inline void append_hex(unsigned char byte, std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  text += kDigits[byte >> 4];
  text += kDigits[byte & 15];
}

// Copies `text` into a fixed field: cut to fit, padded with zeros, always terminated.
template <std::size_t kSize>
void set_text(char (&field)[kSize], std::string_view text) noexcept {
  const std::size_t size = text.size() < kSize - 1 ? text.size() : kSize - 1;
  std::memcpy(field, text.data(), size);
  std::memset(field + size, 0, kSize - size);
}

// Splits a table of texts, written as one. It does not compile if there are not so many parts, or
// one is empty.
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

// Returns numbers as ranges: "0-5,7". They must be sorted, each once.
template <class Number>
std::string folded(const std::vector<Number>& numbers) {
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[first]);
    if (last > first) text.append("-").append(std::to_string(numbers[last]));
    first = last + 1;
  }
  return text;
}

}  // namespace oddrank
