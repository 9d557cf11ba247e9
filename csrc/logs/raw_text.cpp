// Takes lines out of Docker's JSON, and makes them harmless for a terminal.
#include "logs/raw_text.hpp"

namespace oddrank::logs {
namespace {

// Moves behind a key and its colon, to the quote that begins its value. False if it is not there.
bool take_key(std::string_view& line, std::string_view key) {
  const std::size_t found = line.find(key);
  if (found == std::string_view::npos) return false;
  std::size_t at = found + key.size();
  while (at < line.size() && line[at] == ' ') ++at;
  if (at == line.size() || line[at] != '"') return false;
  line.remove_prefix(at + 1);
  return true;
}

// Moves behind a string of JSON, and appends its text. False if it has no end.
bool take_string(std::string_view& line, std::string& text) {
  while (true) {
    const std::size_t end = line.find_first_of("\"\\");
    if (end == std::string_view::npos) return false;
    text.append(line.substr(0, end));
    const bool escape = line[end] == '\\';
    line.remove_prefix(end + (escape ? 0 : 1));
    if (!escape) return true;
    if (!take_json_escape(line, [&text](char byte) { text += byte; })) return false;
  }
}

bool is_harmless(std::uint32_t code) {
  return code >= 0xa0 && code != 0xad && code != 0x61c && !(code >= 0x200b && code <= 0x200f) &&
         !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2060 && code <= 0x206f) &&
         !(code >= 0xd800 && code <= 0xf8ff) && code != 0xfeff &&
         !(code >= 0xfff0 && code <= 0xfffc) && code < 0xe0000;
}

}  // namespace

bool unpack_docker(std::string_view line, std::string& text) {
  if (!line.starts_with("{\"log\":")) return false;
  std::string said;
  if (!take_key(line, "\"log\":") || !take_string(line, said)) return false;
  while (!said.empty() && (said.back() == '\n' || said.back() == '\r')) said.pop_back();
  text.clear();
  if (take_key(line, "\"time\":") && take_string(line, text)) text += ' ';
  text += said;
  return true;
}

void append_for_terminal(std::string_view line, std::string& to) {
  for (std::size_t at = 0; at < line.size();) {
    const auto byte = static_cast<unsigned char>(line[at]);
    if (byte == 0x1b) {
      at = behind_escape(line, at);
    } else if (byte < 0x80) {
      const bool shown = (byte >= 0x20 && byte != 0x7f) || byte == '\t';
      // Each state of a progress bar is seen, as no carriage return moves back.
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
