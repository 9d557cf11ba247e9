// Escapes, checks UTF-8 and prints numbers without locale or allocation.
#include "trace/read/json_text.hpp"

#include <charconv>

namespace oddrank::trace {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool continues(unsigned char byte) noexcept { return (byte & 0xC0) == 0x80; }

// Bytes of the character that `bytes` begins with; 0 where it is none (RFC 3629: no surrogates,
// nothing longer than needed, nothing beyond U+10FFFF).
std::size_t length_of_character(std::string_view bytes) noexcept {
  const auto at = [bytes](std::size_t i) {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : static_cast<unsigned char>(0);
  };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4 || !continues(at(1))) return 0;
  if (first < 0xE0) return 2;
  if (!continues(at(2))) return 0;
  const bool too_long = (first == 0xE0 && at(1) < 0xA0) || (first == 0xF0 && at(1) < 0x90);
  const bool no_character = (first == 0xED && at(1) > 0x9F) || (first == 0xF4 && at(1) > 0x8F);
  if (too_long || no_character) return 0;
  if (first < 0xF0) return 3;
  return continues(at(3)) ? 4 : 0;
}

void append_control(std::string& to, unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  to += "\\u00";
  to += kDigits[byte >> 4];
  to += kDigits[byte & 15];
}

}  // namespace

void append_escaped(std::string& to, std::string_view bytes, std::size_t most) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t length = length_of_character(bytes.substr(at, 4));
    if (at + length > most || at >= most) {
      to += "...";
      return;
    }
    const auto first = static_cast<unsigned char>(bytes[at]);
    if (length == 0) {
      to += kReplacement;
    } else if (first < 0x20) {
      append_control(to, first);
    } else {
      if (first == '"' || first == '\\') to += '\\';
      to += bytes.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
}

void append_number(std::string& to, std::int64_t number) {
  char digits[24];
  const auto result = std::to_chars(digits, digits + sizeof digits, number);
  to.append(digits, result.ptr);
}

void append_microseconds(std::string& to, std::int64_t nanoseconds) {
  if (nanoseconds < 0) to += '-';
  // Without a sign, since the smallest number has none of its own size.
  const auto value = nanoseconds < 0 ? 0 - static_cast<std::uint64_t>(nanoseconds)
                                     : static_cast<std::uint64_t>(nanoseconds);
  char digits[28];
  char* end = std::to_chars(digits, digits + sizeof digits, value / 1000).ptr;
  const std::uint64_t rest = value % 1000;
  *end++ = '.';
  *end++ = static_cast<char>('0' + rest / 100);
  *end++ = static_cast<char>('0' + rest / 10 % 10);
  *end++ = static_cast<char>('0' + rest % 10);
  to.append(digits, end);
}

}  // namespace oddrank::trace
