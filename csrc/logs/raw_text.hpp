// Text as logs have it: ASCII characters in any locale; escape sequences of terminals (colours,
// links), which lie inside the words of a line; lines of Docker's json-file driver:
// {"log":"text\n","stream":"stderr","time":"2026-..."}.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "os/encoding.hpp"

namespace oddrank::logs {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
constexpr bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Returns where the text goes on behind the escape sequence that begins at `at`.
inline std::size_t behind_escape(std::string_view text, std::size_t at) noexcept {
  const std::size_t next = at + 1;
  if (next >= text.size()) return next;
  if (text[next] == '[') {
    std::size_t last = next + 1;
    while (last < text.size() && (text[last] < '@' || text[last] > '~')) ++last;
    return last + 1;
  }
  if (text[next] == ']') {  // up to a bell, or to ESC and a backslash
    const std::size_t end = text.find_first_of("\a\x1b", next);
    if (end == std::string_view::npos) return next;
    return text[end] == '\a' ? end + 1 : end + 2;
  }
  return text[next] == '(' ? next + 2 : next;  // ESC(B of tput: another set of characters
}

// Puts the text without its escape sequences into `plain`.
inline void without_escapes(std::string_view text, std::string& plain) {
  plain.clear();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t escape = text.find('\x1b', at);
    plain.append(text.substr(at, escape - at));
    at = escape == std::string_view::npos ? escape : behind_escape(text, escape);
  }
}

// Takes an escape sequence of a JSON string, whose backslash is at the front, and calls `put` with
// each byte that it stands for: never more than it has. Half of a surrogate pair is U+FFFD. Returns
// false, and has taken a part, for other text.
template <class Put>
bool take_json_escape(std::string_view& text, Put put) {
  const auto take_hex = [&text](std::uint32_t& code) {
    const std::string_view digits = text.substr(0, 4);
    if (digits.size() < 4 ||
        std::from_chars(digits.begin(), digits.end(), code, 16).ptr != digits.end())
      return false;
    text.remove_prefix(4);
    return true;
  };
  if (text.size() < 2) return false;
  const char c = text[1];
  text.remove_prefix(2);
  constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
  const std::size_t known = kFrom.find(c);
  if (c != 'u') return put(known == std::string_view::npos ? c : kTo[known]), true;
  std::uint32_t code = 0, low = 0;
  if (!take_hex(code)) return false;
  if (code >= 0xd800 && code < 0xdc00 && text.size() >= 6 && text.starts_with("\\u")) {
    const std::string_view second = text;
    text.remove_prefix(2);
    if (!take_hex(low)) return false;
    if (low >= 0xdc00 && low < 0xe000) {
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else {
      text = second;  // a character of its own
    }
  }
  put_utf8(is_surrogate(code) ? 0xfffd : code, put);
  return true;
}

// Puts a container's output into `text`, its time in front. Returns false for other lines.
bool unpack_docker(std::string_view line, std::string& text);

// Appends a line without escape sequences, and with '?' for each control character but the tab,
// byte that is no UTF-8, and character that is invisible or changes the direction of text.
void append_for_terminal(std::string_view line, std::string& to);

}  // namespace oddrank::logs
