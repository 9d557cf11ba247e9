// Reads numbers as training frameworks print them: 2.35E+00, 89,241, 1.2K, nan, -inf.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "logs/characters.hpp"

namespace oddrank::metrics {

constexpr std::array<double, 23> kPowers{1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                         1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                         1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// Takes nan, NaN, inf or Infinity. Returns false, and moves nothing, for another word.
inline bool take_not_finite(std::string_view& text, double& value) {
  const bool minus = text.starts_with('-');
  const std::string_view word = text.substr(minus ? 1 : 0);
  if (word.size() < 3) return false;
  const std::array<char, 3> three{logs::lower(word[0]), logs::lower(word[1]), logs::lower(word[2])};
  const std::string_view found(three.data(), three.size());
  if (found != "nan" && found != "inf") return false;
  value = found == "nan" ? std::numeric_limits<double>::quiet_NaN()
                         : std::numeric_limits<double>::infinity();
  if (minus) value = -value;
  std::size_t end = minus ? 4 : 3;
  while (end < text.size() && logs::is_letter(text[end])) ++end;
  text.remove_prefix(end);
  return true;
}

// Takes a number from the front of a text. Returns false, and moves nothing, if there is none.
// Exact for what fits into 53 bits and a power of ten up to 22, which all of these lines do.
inline bool take_number(std::string_view& text, double& value) {
  const char* at = text.data();
  const char* const end = at + text.size();
  const bool minus = at != end && *at == '-';
  if (at != end && (minus || *at == '+')) ++at;
  const char* const digits = at;
  std::uint64_t whole = 0;
  int count = 0;
  int exponent = 0;
  bool commas = false;
  for (; at != end; ++at) {
    if (logs::is_digit(*at)) {
      whole = whole * 10 + static_cast<std::uint64_t>(*at - '0');
      ++count;
    } else if (*at == ',' && count > 0 && end - at > 3 && logs::is_digit(at[1]) &&
               logs::is_digit(at[2]) && logs::is_digit(at[3])) {
      commas = true;
    } else {
      break;
    }
  }
  if (at != end && *at == '.') {
    for (++at; at != end && logs::is_digit(*at); ++at) {
      whole = whole * 10 + static_cast<std::uint64_t>(*at - '0');
      ++count;
      --exponent;
    }
  }
  if (count == 0) return take_not_finite(text, value);
  if (end - at > 1 && (*at == 'e' || *at == 'E')) {
    const char* power = at + 1;
    const bool below = *power == '-';
    if (below || *power == '+') ++power;
    int number = 0;
    const char* const first = power;
    for (; power != end && logs::is_digit(*power) && number < 10'000; ++power) {
      number = number * 10 + (*power - '0');
    }
    if (power != first) {
      exponent += below ? -number : number;
      at = power;
    }
  }
  if (count <= 19 && whole < (std::uint64_t{1} << 53) && exponent >= -22 && exponent <= 22) {
    const auto exact = static_cast<double>(whole);
    value = exponent < 0 ? exact / kPowers[static_cast<std::size_t>(-exponent)]
                         : exact * kPowers[static_cast<std::size_t>(exponent)];
  } else {
    std::string plain(digits, at);
    if (commas) std::erase(plain, ',');
    value = 0;
    const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), value);
    if (read.ec == std::errc::result_out_of_range) {
      value = exponent > 0 ? std::numeric_limits<double>::infinity() : 0;
    }
  }
  if (minus) value = -value;
  text.remove_prefix(static_cast<std::size_t>(at - text.data()));
  return true;
}

// Takes what may follow a number and makes it larger: 41K, 1.2M, 3.5B or 3.5G, 2T.
inline double take_thousands(std::string_view& text) {
  if (text.empty() || (text.size() > 1 && logs::is_letter(text[1]))) return 1;
  constexpr std::string_view kLetters = "KMBT";
  const std::size_t found = kLetters.find(text[0] == 'G' ? 'B' : text[0]);
  if (found == std::string_view::npos) return 1;
  text.remove_prefix(1);
  return kPowers[3 * (found + 1)];
}

}  // namespace oddrank::metrics
