// Recognises frames of stacks, each on a line. No function allocates; all take any bytes.
#include <algorithm>
#include <array>
#include <charconv>

#include "triage/stack_lines.hpp"

namespace oddrank::triage {
namespace {

std::string_view base_name(std::string_view path) noexcept {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// Whether a file is Python's: by its ending, or a place such as <string>.
bool is_python(std::string_view file) noexcept {
  if (file.starts_with('<')) return true;
  static constexpr std::array<std::string_view, 4> kEndings{".py", ".pyx", ".pyw", ".pyc"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return file.ends_with(ending); });
}

// Returns the place before the bracket that the last ')' closes; a path may have some of its own.
// Where they don't match, anything.
std::size_t opening_bracket(std::string_view line) noexcept {
  std::size_t depth = 0;
  for (std::size_t at = line.size(); at-- > 0;) {
    if (line[at] == ')') ++depth;
    if (line[at] == '(' && --depth == 0) return at == 0 ? 0 : at - 1;
  }
  return std::string_view::npos;
}

// Cuts ":12" off a file. Returns the line; 0: none.
std::int32_t cut_line(std::string_view& file) noexcept {
  const auto colon = file.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == file.size()) return 0;
  std::int32_t line = 0;
  const auto [end, error] =
      std::from_chars(file.data() + colon + 1, file.data() + file.size(), line);
  if (error != std::errc{} || end != file.data() + file.size() || line < 0) return 0;
  file = file.substr(0, colon);
  return line;
}

}  // namespace

std::optional<FrameLine> py_spy_frame(std::string_view line) noexcept {
  line = trimmed(line);
  if (line.size() < 4 || line.back() != ')') return std::nullopt;
  const auto open = line.rfind(" (", opening_bracket(line));
  if (open == std::string_view::npos || open == 0) return std::nullopt;
  FrameLine found;
  found.function = line.substr(0, open);
  found.file = line.substr(open + 2, line.size() - open - 3);
  if (found.file.empty()) return std::nullopt;
  const bool brackets = found.file.find_first_of("()") != std::string_view::npos;
  found.line = cut_line(found.file);
  if (brackets && found.line == 0) return std::nullopt;
  found.native = !is_python(found.file) && (found.line == 0 || !found.file.starts_with('<'));
  return found;
}

std::optional<FrameLine> file_frame(std::string_view line) noexcept {
  line = trimmed(line);
  FrameLine found;
  if (cut(line, "(C) ")) {
    found.native = true;
  } else {
    cut(line, "(Python) ");
  }
  if (cut(line, "Binary file \"")) {  // faulthandler's C stack, from 3.14 on
    const auto close = line.find('"');
    if (close == std::string_view::npos) return std::nullopt;
    found.native = true;
    found.file = line.substr(0, close);
    line.remove_prefix(close);
    found.function = "??";
    if (const auto at = line.find(", at "); at != std::string_view::npos) {
      line.remove_prefix(at + 5);
      found.function = line.substr(0, line.find_first_of("+ ["));
      if (found.function.empty()) found.function = "??";
    }
    return found;
  }
  if (!cut(line, "File \"")) return std::nullopt;
  const auto close = line.find("\", line ");
  if (close == std::string_view::npos) return std::nullopt;
  found.file = line.substr(0, close);
  line.remove_prefix(close + 8);
  std::string_view digits = line;
  const auto number = take_number(digits);
  if (number && *number <= INT32_MAX) found.line = static_cast<std::int32_t>(*number);
  const auto in = line.find("in ");
  // Behind a number or "???" and a comma; a traceback of a module that was never run has none.
  if (in == std::string_view::npos || in > 24) {
    found.function = "<module>";
    return number ? std::optional(found) : std::nullopt;
  }
  line = line.substr(0, line.find("  opcode="));  // of profiling.sampling
  found.function = trimmed(line.substr(in + 3));
  if (found.native) {
    if (found.function.ends_with(')')) {
      if (const auto open = found.function.rfind(" ("); open != std::string_view::npos) {
        const std::string_view library =
            found.function.substr(open + 2, found.function.size() - open - 3);
        if (found.file == "???" || found.line == 0) found.file = library;
        found.function = found.function.substr(0, open);
      }
    }
    if (found.function.ends_with(" (inlined)")) found.function.remove_suffix(10);
  }
  if (found.function.empty()) return std::nullopt;
  return found;
}

std::optional<FrameLine> debugger_frame(std::string_view text) noexcept {
  text = trimmed(text);
  if (!cut(text, "#")) return std::nullopt;
  const auto number = take_number(text);
  if (!number || *number > 1'000'000 || !text.starts_with(' ')) return std::nullopt;
  text = trimmed(text);
  FrameLine found;
  found.native = true;
  bool bare = false;  // eu-stack and pstack: "0x00007f poll" without " in "
  if (text.starts_with("0x")) {
    std::string_view rest = text.substr(2);
    if (!take_hex(rest)) return std::nullopt;
    if (!cut(rest, " in ")) {
      bare = !rest.empty();
      if (rest.empty()) return std::nullopt;
    }
    text = trimmed(rest);
  }
  // The arguments begin at the first " (" outside of template brackets.
  std::size_t open = std::string_view::npos;
  int depth = 0;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const char c = text[i];
    if (c == '<') ++depth;
    if (c == '>' && depth > 0 && (i == 0 || text[i - 1] != '-')) --depth;
    if (depth == 0 && c == ' ' && text[i + 1] == '(' && i > 0) {
      open = i;
      break;
    }
  }
  if (open == std::string_view::npos) open = text.rfind(" (");
  found.function = trimmed(text.substr(0, open));
  std::string_view rest = open == std::string_view::npos ? std::string_view{} : text.substr(open);
  if (bare) {  // "poll - 1 /lib/libc.so": the name ends at a space
    found.function = found.function.substr(0, found.function.find(" - "));
  }
  if (const auto at = rest.rfind(") at "); at != std::string_view::npos) {
    found.file = trimmed(rest.substr(at + 5));
    found.line = cut_line(found.file);
  } else if (const auto from = rest.rfind(") from "); from != std::string_view::npos) {
    found.file = base_name(trimmed(rest.substr(from + 7)));
  }
  if (found.function.empty()) return std::nullopt;
  return found;
}

std::optional<FrameLine> c10_frame(std::string_view line) noexcept {
  line = trimmed(line);
  if (!cut(line, "frame #")) return std::nullopt;
  if (!take_number(line) || !cut(line, ": ")) return std::nullopt;
  FrameLine found;
  found.native = true;
  const auto plus = line.rfind(" + 0x");
  found.function = line.substr(0, plus == std::string_view::npos ? line.rfind(" (0x") : plus);
  if (const auto in = line.rfind(" in "); in != std::string_view::npos && line.ends_with(')')) {
    found.file = base_name(line.substr(in + 4, line.size() - in - 5));
  }
  if (found.function.empty()) return std::nullopt;
  return found;
}

std::optional<FrameLine> raised_frame(std::string_view text) noexcept {
  if (!cut(text, "Exception raised from ")) return std::nullopt;
  const auto end = text.rfind(" (most recent call first):");
  if (end == std::string_view::npos) return std::nullopt;
  text = text.substr(0, end);
  FrameLine found;
  found.native = true;
  const auto at = text.find(" at ");
  found.function = text.substr(0, at);
  if (at != std::string_view::npos) found.file = text.substr(at + 4);
  found.line = cut_line(found.file);
  return found;
}

}  // namespace oddrank::triage
