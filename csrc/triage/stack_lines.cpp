// Recognises heads of processes and threads, headlines, and frames. No function allocates; all
// take any bytes.
#include "triage/stack_lines.hpp"

#include "logs/patterns.hpp"
#include "os/encoding.hpp"

namespace oddrank::triage {
namespace {

constexpr auto kHeadWords = split<8>("node host hostname rank pid machine worker pod");
constexpr auto kEndings = split<4>(".py .pyx .pyw .pyc");

using logs::has;
using logs::is_digit;
using logs::is_letter;
using logs::take;
using logs::take_number;

std::optional<ThreadLine> py_spy_thread(std::string_view rest) noexcept {
  ThreadLine found;
  found.decimal = !take<"0x">(rest) && !take<"0X">(rest);
  if (!take_number(rest, found.id, found.decimal ? 10 : 16)) return std::nullopt;
  const bool stated = take<" (">(rest);
  if (stated) {
    const auto close = rest.find(')');
    if (close == std::string_view::npos || close == 0 || close > 24) return std::nullopt;
    found.state = rest.substr(0, close);
    if (!std::all_of(found.state.begin(), found.state.end(),
                     [](char c) { return is_letter(c) || c == '+' || c == '_'; })) {
      return std::nullopt;
    }
    rest.remove_prefix(close + 1);
    const bool gil = found.state.ends_with("gil");
    if (gil || found.state.starts_with("active") || found.state.starts_with("idle")) {
      found.gil = gil;
    }
  }
  if (take<": \"">(rest)) {
    if (!rest.ends_with('"')) return std::nullopt;
    found.name = rest.substr(0, rest.size() - 1);
    return found;
  }
  return stated && rest.empty() ? std::optional(found) : std::nullopt;
}

std::optional<ThreadLine> faulthandler_thread(std::string_view rest, bool current) noexcept {
  ThreadLine found{.form = ThreadLine::Form::kFaulthandler, .current = current};
  if (!take<"0x%x">(rest, found.id)) return std::nullopt;
  if (take<" [">(rest)) {  // from 3.14 on: the thread's name
    const auto close = rest.rfind("] (");
    if (close == std::string_view::npos) return std::nullopt;
    found.name = rest.substr(0, close);
    rest.remove_prefix(close + 1);
  }
  if (!take<" (most recent call first)">(rest)) return std::nullopt;
  return found;
}

// "3 (Thread 0x7f55 (LWP 3514) "name"):" or "3 (LWP 3514):", the colon missing in some dumps.
std::optional<ThreadLine> gdb_thread(std::string_view rest) noexcept {
  ThreadLine found{.form = ThreadLine::Form::kGdb, .decimal = true};
  if (!take<"%u (">(rest, found.number)) return std::nullopt;
  rest = rest.substr(std::min({rest.size(), rest.find("LWP "), rest.find("process ")}));
  if (!take<"LWP ">(rest)) take<"process ">(rest);
  if (!take<"%u)">(rest, found.id)) return std::nullopt;
  if (const auto quote = rest.find('"'); quote != std::string_view::npos) {
    const auto close = rest.find('"', quote + 1);
    if (close != std::string_view::npos) found.name = rest.substr(quote + 1, close - quote - 1);
    rest = close == std::string_view::npos ? rest : rest.substr(close + 1);
  }
  if (has(rest, "received")) return std::nullopt;
  return found;
}

// "Traceback for thread 123 (name) [Has the GIL] (most recent call last):".
std::optional<ThreadLine> pystack_thread(std::string_view rest) noexcept {
  ThreadLine found{.form = ThreadLine::Form::kPystack, .decimal = true, .outermost_first = true};
  if (!take_number(rest, found.id) || !has(rest, "(most recent call last)")) return std::nullopt;
  if (has(rest, "[")) {
    found.gil = has(rest, "Has the GIL");
    found.wants_gil = has(rest, "Waiting for the GIL");
  }
  if (const auto close = rest.find(") ["); take<" (">(rest) && close != std::string_view::npos) {
    found.name = rest.substr(0, close - 2);
  }
  return found;
}

// "Stack dump for PID 12, thread 13 (main thread, has GIL; most recent call last):", of Python
// 3.15's profiling.sampling. Only the first of several names the process.
std::optional<ThreadLine> sampling_thread(std::string_view rest) noexcept {
  ThreadLine found{.form = ThreadLine::Form::kPystack, .decimal = true, .outermost_first = true};
  take<" for PID %u">(rest, found.number);
  if (!take<", thread %u">(rest, found.id) || !rest.ends_with("most recent call last):"))
    return std::nullopt;
  if (has(rest, "main thread")) found.name = "MainThread";
  found.gil = has(rest, "has GIL");
  found.wants_gil = has(rest, "waiting for GIL");
  return found;
}

bool begins_with_word(std::string_view text, std::string_view word) noexcept {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(),
                    [](char a, char b) { return a == logs::lower(b); }) &&
         (text.size() == word.size() || !is_letter(text[word.size()]));
}

std::string_view base_name(std::string_view path) noexcept {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// Whether a file is Python's: by its ending, or a place such as <string>.
bool is_python(std::string_view file) noexcept {
  if (file.starts_with('<')) return true;
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

std::string_view trimmed(std::string_view line) noexcept {
  constexpr std::string_view kSpace = " \t\r\v\f";
  const auto first = line.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(kSpace) - first + 1);
}

std::size_t indentation(std::string_view line) noexcept {
  const auto first = line.find_first_not_of(" \t");
  return first == std::string_view::npos ? line.size() : first;
}

std::optional<ThreadLine> thread_line(std::string_view line) noexcept {
  line = trimmed(line);
  if (line.size() < 8) return std::nullopt;
  if (take<"Thread ">(line)) {
    if (const auto found = faulthandler_thread(line, false)) return found;
    if (const auto found = gdb_thread(line)) return found;
    return py_spy_thread(line);
  }
  if (take<"Current thread ">(line)) return faulthandler_thread(line, true);
  if (line.starts_with("Stack (most recent call first)")) {
    return ThreadLine{.form = ThreadLine::Form::kFaulthandler};
  }
  if (take<"Traceback for thread ">(line)) return pystack_thread(line);
  if (take<"Stack dump">(line)) return sampling_thread(line);
  ThreadLine found{.form = ThreadLine::Form::kEuStack, .decimal = true};
  if (!take<"TID %u">(line, found.id) || (!line.empty() && line != ":")) return std::nullopt;
  return found;
}

std::uint64_t process_line(std::string_view line) noexcept {
  std::uint64_t pid = 0;
  return take<"Process %u:">(line, pid) ? pid : 0;
}

std::uint64_t debugger_process(std::string_view line) noexcept {
  std::uint64_t pid = 0;
  if (take<"Attaching to process %u">(line, pid) || take<"PID %u - process">(line, pid) ||
      take<"PID %u - core">(line, pid)) {
    return pid;
  }
  if (!line.starts_with("[Inferior ") || !line.ends_with("detached]")) return 0;
  line.remove_prefix(std::min(line.find("(process "), line.size()));
  return take<"(process %u">(line, pid) ? pid : 0;
}

bool is_headline(std::string_view line, std::string_view& text) noexcept {
  if (line.size() > 160 || indentation(line) > 0) return false;
  line = trimmed(line);
  const auto first = line.find_first_not_of("=-#*~<> \t");
  if (first == std::string_view::npos) return false;
  const auto last = line.find_last_not_of("=-#*~<> \t");
  text = line.substr(first, last - first + 1);
  while (text.ends_with(':')) text.remove_suffix(1);
  if (text.size() < 2) return false;
  const bool word = text.find_first_of(" \t") == std::string_view::npos;
  const bool named = std::any_of(kHeadWords.begin(), kHeadWords.end(),
                                 [&](std::string_view one) { return begins_with_word(text, one); });
  const auto words = 1 + std::count(text.begin(), text.end(), ' ');
  const bool digit = std::any_of(text.begin(), text.end(), is_digit);
  // "=== node48 ===", "==> trace-3.out <==", "### Rank 3"; a rule of equal signs alone is none.
  if (first >= 2 && last + 2 <= line.size() && (word || (named && words <= 8))) return true;
  if (first >= 2 && named && digit && words <= 8) return true;
  if (named && words <= 4 && digit) return true;
  return word && line.ends_with(':') && digit && is_name(text);
}

bool is_name(std::string_view line) noexcept {
  line = trimmed(line);
  if (line.size() < 2 || line.size() > 120) return false;
  return std::all_of(line.begin(), line.end(), [](char c) {
    return is_digit(c) || is_letter(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

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
  found.native = take<"(C) ">(line);
  if (!found.native) take<"(Python) ">(line);
  if (take<"Binary file \"">(line)) {  // faulthandler's C stack, from 3.14 on
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
  if (!take<"File \"">(line)) return std::nullopt;
  const auto close = line.find("\", line ");
  if (close == std::string_view::npos) return std::nullopt;
  found.file = line.substr(0, close);
  line.remove_prefix(close + 8);
  std::string_view digits = line;
  std::uint64_t number = 0;
  const bool numbered = take_number(digits, number);
  if (number <= INT32_MAX) found.line = static_cast<std::int32_t>(number);
  const auto in = line.find("in ");
  // Behind a number or "???" and a comma; a traceback of a module that was never run has none.
  if (in == std::string_view::npos || in > 24) {
    found.function = "<module>";
    return numbered ? std::optional(found) : std::nullopt;
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
  std::uint64_t number = 0;
  if (!take<"#%u ">(text, number) || number > 1'000'000) return std::nullopt;
  text = trimmed(text);
  FrameLine found;
  found.native = true;
  bool bare = false;  // eu-stack and pstack: "0x00007f poll" without " in "
  if (take<"0x">(text)) {
    if (!take_number(text, number, 16) || text.empty()) return std::nullopt;
    bare = !take<" in ">(text);
    text = trimmed(text);
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
  std::uint64_t number = 0;
  if (!take<"frame #%u: ">(line, number)) return std::nullopt;
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
  if (!take<"Exception raised from ">(text)) return std::nullopt;
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
