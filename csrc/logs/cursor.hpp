// Reads prefixes of lines from their fronts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "logs/characters.hpp"

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

// Reads a text from its front. All of its functions return false, and move nothing, where the text
// does not fit.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  std::size_t at() const { return at_; }
  bool done() const { return at_ == text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }

  bool take(char c) {
    if (peek() != c || done()) return false;
    ++at_;
    return true;
  }
  template <std::size_t kSize>
  bool take(const char (&word)[kSize]) {
    constexpr std::size_t kLength = kSize - 1;
    if (text_.size() - at_ < kLength || std::memcmp(text_.data() + at_, word, kLength) != 0) {
      return false;
    }
    at_ += kLength;
    return true;
  }
  bool take_number(std::int64_t& number, std::size_t most_digits = 10) {
    std::size_t end = at_;
    std::int64_t value = 0;
    while (end < text_.size() && is_digit(text_[end])) {
      if (end - at_ == most_digits) return false;
      value = value * 10 + (text_[end++] - '0');
    }
    if (end == at_) return false;
    at_ = end;
    number = value;
    return true;
  }
  template <class Is>
  std::string_view take_while(Is is) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && at_ - begin < kLongestPrefix && is(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // "2026-": a date begins.
  bool take_year() {
    std::int64_t year = 0;
    Cursor ahead = *this;
    if (!ahead.take_number(year, 4) || year < 1000 || !ahead.take('-')) return false;
    *this = ahead;
    return true;
  }
  std::string_view rest() const { return text_.substr(at_); }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace oddrank::logs
