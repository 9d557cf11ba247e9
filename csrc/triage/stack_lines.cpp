// Recognises heads of processes and threads, and headlines. No function allocates; all take any
// bytes.
#include "triage/stack_lines.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "logs/raw_text.hpp"

namespace oddrank::triage {
namespace {

constexpr std::string_view kFirst = "(most recent call first)";
constexpr std::string_view kLast = "(most recent call last)";

using logs::is_digit;
using logs::is_letter;

std::optional<ThreadLine> py_spy_thread(std::string_view rest) noexcept {
  ThreadLine found;
  if (rest.starts_with("0x") || rest.starts_with("0X")) {
    rest.remove_prefix(2);
    const auto id = take_hex(rest);
    if (!id) return std::nullopt;
    found.id = *id;
  } else {
    const auto id = take_number(rest);
    if (!id) return std::nullopt;
    found.id = *id;
    found.decimal = true;
  }
  bool said = false;
  if (cut(rest, " (")) {
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
    said = true;
  }
  if (cut(rest, ": \"")) {
    if (!rest.ends_with('"')) return std::nullopt;
    found.name = rest.substr(0, rest.size() - 1);
    rest = {};
    said = true;
  }
  if (!said || !rest.empty()) return std::nullopt;
  return found;
}

std::optional<ThreadLine> faulthandler_thread(std::string_view rest, bool current) noexcept {
  ThreadLine found;
  found.form = ThreadLine::Form::kFaulthandler;
  found.current = current;
  if (!cut(rest, "0x")) return std::nullopt;
  const auto id = take_hex(rest);
  if (!id) return std::nullopt;
  found.id = *id;
  if (cut(rest, " [")) {  // from 3.14 on: the thread's name
    const auto close = rest.rfind("] (");
    if (close == std::string_view::npos) return std::nullopt;
    found.name = rest.substr(0, close);
    rest.remove_prefix(close + 1);
  }
  if (!cut(rest, " ") || !rest.starts_with(kFirst)) return std::nullopt;
  return found;
}

// "3 (Thread 0x7f55 (LWP 3514) "name"):" or "3 (LWP 3514):", the colon missing in some dumps.
std::optional<ThreadLine> gdb_thread(std::string_view rest) noexcept {
  ThreadLine found;
  found.form = ThreadLine::Form::kGdb;
  const auto number = take_number(rest);
  if (!number || !cut(rest, " (")) return std::nullopt;
  found.number = *number;
  auto at = rest.find("LWP ");
  std::size_t skip = 4;
  if (at == std::string_view::npos) {
    at = rest.find("process ");
    skip = 8;
  }
  if (at == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(at + skip);
  const auto id = take_number(rest);
  if (!id || !rest.starts_with(')')) return std::nullopt;
  found.id = *id;
  found.decimal = true;
  if (const auto quote = rest.find('"'); quote != std::string_view::npos) {
    const auto close = rest.find('"', quote + 1);
    if (close != std::string_view::npos) found.name = rest.substr(quote + 1, close - quote - 1);
    rest = close == std::string_view::npos ? rest : rest.substr(close + 1);
  }
  if (rest.find("received") != std::string_view::npos) return std::nullopt;
  return found;
}

// "Traceback for thread 123 (name) [Has the GIL] (most recent call last):".
std::optional<ThreadLine> pystack_thread(std::string_view rest) noexcept {
  ThreadLine found;
  found.form = ThreadLine::Form::kPystack;
  found.outermost_first = true;
  const auto id = take_number(rest);
  if (!id || rest.find(kLast) == std::string_view::npos) return std::nullopt;
  found.id = *id;
  found.decimal = true;
  const auto marks = rest.rfind('[');
  if (cut(rest, " (")) {
    const auto close = rest.find(") [");
    if (close != std::string_view::npos) found.name = rest.substr(0, close);
  }
  if (marks != std::string_view::npos) {
    found.gil = rest.find("Has the GIL") != std::string_view::npos;
    found.wants_gil = rest.find("Waiting for the GIL") != std::string_view::npos;
  }
  return found;
}

// "Stack dump for PID 12, thread 13 (main thread, has GIL; most recent call last):", of Python
// 3.15's profiling.sampling. Only the first of several names the process.
std::optional<ThreadLine> sampling_thread(std::string_view rest) noexcept {
  ThreadLine found;
  found.form = ThreadLine::Form::kPystack;
  found.outermost_first = true;
  if (cut(rest, " for PID ")) found.number = take_number(rest).value_or(0);
  if (!cut(rest, ", thread ") || !rest.ends_with("most recent call last):")) return std::nullopt;
  const auto id = take_number(rest);
  if (!id) return std::nullopt;
  found.id = *id;
  found.decimal = true;
  if (rest.find("main thread") != std::string_view::npos) found.name = "MainThread";
  found.gil = rest.find("has GIL") != std::string_view::npos;
  found.wants_gil = rest.find("waiting for GIL") != std::string_view::npos;
  return found;
}

bool begins_with_word(std::string_view text, std::string_view word) noexcept {
  if (text.size() < word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (logs::lower(text[i]) != word[i]) return false;
  }
  return text.size() == word.size() || !is_letter(text[word.size()]);
}

}  // namespace

bool cut(std::string_view& text, std::string_view start) noexcept {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

std::optional<std::uint64_t> take_hex(std::string_view& text) noexcept {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

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

std::optional<std::uint64_t> take_number(std::string_view& text) noexcept {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number > INT64_MAX) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::optional<ThreadLine> thread_line(std::string_view line) noexcept {
  line = trimmed(line);
  if (line.size() < 8) return std::nullopt;
  if (cut(line, "Thread ")) {
    if (const auto found = faulthandler_thread(line, false)) return found;
    if (const auto found = gdb_thread(line)) return found;
    return py_spy_thread(line);
  }
  if (cut(line, "Current thread ")) return faulthandler_thread(line, true);
  if (line.starts_with("Stack (most recent call first)")) {
    ThreadLine found;
    found.form = ThreadLine::Form::kFaulthandler;
    return found;
  }
  if (cut(line, "Traceback for thread ")) return pystack_thread(line);
  if (cut(line, "Stack dump")) return sampling_thread(line);
  if (cut(line, "TID ")) {
    ThreadLine found;
    found.form = ThreadLine::Form::kEuStack;
    const auto id = take_number(line);
    if (!id || (!line.empty() && line != ":")) return std::nullopt;
    found.id = *id;
    found.decimal = true;
    return found;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> process_line(std::string_view line,
                                          std::string_view& command) noexcept {
  line = trimmed(line);
  if (!cut(line, "Process ")) return std::nullopt;
  const auto pid = take_number(line);
  if (!pid || !cut(line, ":")) return std::nullopt;
  command = trimmed(line);
  return pid;
}

std::optional<std::uint64_t> parent_line(std::string_view line) noexcept {
  std::string_view command;
  line = trimmed(line);
  return cut(line, "Parent ") ? process_line(line, command) : std::nullopt;
}

std::optional<std::uint64_t> debugger_process(std::string_view line) noexcept {
  line = trimmed(line);
  if (cut(line, "Attaching to process ")) return take_number(line);
  if (cut(line, "PID ")) {
    const auto pid = take_number(line);
    return line.starts_with(" - process") || line.starts_with(" - core") ? pid : std::nullopt;
  }
  if (line.starts_with("[Inferior ") && line.ends_with("detached]")) {
    const auto at = line.find("(process ");
    if (at == std::string_view::npos) return std::nullopt;
    line.remove_prefix(at + 9);
    return take_number(line);
  }
  return std::nullopt;
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
  static constexpr std::array<std::string_view, 8> kWords{"node", "host",    "hostname", "rank",
                                                          "pid",  "machine", "worker",   "pod"};
  const bool named = std::any_of(kWords.begin(), kWords.end(),
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

}  // namespace oddrank::triage
