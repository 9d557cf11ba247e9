// Makes a line of a log harmless for a terminal: what is not known to be harmless is replaced.
#include "logs/terminal.hpp"

#include <cstddef>
#include <cstdint>

#include "logs/escapes.hpp"
#include "os/encoding.hpp"

namespace oddrank::logs {
namespace {

bool is_harmless(std::uint32_t code) {
  return code >= 0xa0 && code != 0xad && code != 0x61c && !(code >= 0x200b && code <= 0x200f) &&
         !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2060 && code <= 0x206f) &&
         !(code >= 0xd800 && code <= 0xf8ff) && code != 0xfeff &&
         !(code >= 0xfff0 && code <= 0xfffc) && code < 0xe0000;
}

}  // namespace

void append_for_terminal(std::string_view line, std::string& to) {
  for (std::size_t at = 0; at < line.size();) {
    const auto byte = static_cast<unsigned char>(line[at]);
    if (byte == 0x1b) {
      at = behind_escape(line, at);
    } else if (byte < 0x80) {
      const bool shown = (byte >= 0x20 && byte != 0x7f) || byte == '\t';
      // Of a progress bar's states each one is seen, as no carriage return moves back.
      if (byte != '\r' || at + 1 < line.size()) to += shown ? line[at] : '?';
      ++at;
    } else {
      std::uint32_t code = 0;
      const std::size_t length = utf8_character(line.substr(at), code);
      if (length > 0 && is_harmless(code)) {
        to.append(line.substr(at, length));
      } else {
        to += '?';
      }
      at += length > 0 ? length : 1;
    }
  }
}

}  // namespace oddrank::logs
