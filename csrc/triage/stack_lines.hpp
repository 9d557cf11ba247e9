// Recognises single lines of stack dumps: heads of processes and threads, frames, headlines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace oddrank::triage {

// A frame as its line names it. Views point into the line. line 0: unknown.
struct FrameLine {
  std::string_view function{};
  std::string_view file{};
  std::int32_t line = 0;
  bool native = false;
};

// Heads of threads. id 0: not said.
struct ThreadLine {
  enum class Form : std::uint8_t { kPySpy, kFaulthandler, kGdb, kPystack, kEuStack };
  Form form = Form::kPySpy;
  std::uint64_t id = 0;
  bool decimal = false;  // the id is the kernel's number of the thread, not an address
  std::string_view name{};
  std::string_view state{};
  std::uint64_t number = 0;      // gdb's own number of the thread, from 1; kPystack: its process
  bool current = false;          // faulthandler's current thread, the one that failed
  std::optional<bool> gil{};     // whether it holds the GIL
  bool wants_gil = false;        // pystack: it waits for the GIL
  bool outermost_first = false;  // the order of the frames that follow
};

// Returns the line without spaces, tabs and '\r' at its ends.
std::string_view trimmed(std::string_view line) noexcept;
// Returns the number of spaces and tabs before the text.
std::size_t indentation(std::string_view line) noexcept;
std::optional<ThreadLine> thread_line(std::string_view line) noexcept;

// "Process 123: python train.py" of py-spy. 0: none.
std::uint64_t process_line(std::string_view line) noexcept;
// "Attaching to process 123", "[Inferior 1 (process 123) detached]", "PID 123 - process". 0: none.
std::uint64_t debugger_process(std::string_view line) noexcept;

// "    function (file.py:12)".
std::optional<FrameLine> py_spy_frame(std::string_view line) noexcept;
// "  File "a.py", line 12, in f" and its kin of faulthandler and pystack.
std::optional<FrameLine> file_frame(std::string_view line) noexcept;
// "#0  0x00007f in f (x=1) at a.c:12" with its continuation lines joined; also of eu-stack.
std::optional<FrameLine> debugger_frame(std::string_view text) noexcept;
// "frame #0: c10::f() + 0x42 (0x7f in /lib/libc10.so)".
std::optional<FrameLine> c10_frame(std::string_view line) noexcept;
// "Exception raised from f at a.cpp:12 (most recent call first):".
std::optional<FrameLine> raised_frame(std::string_view text) noexcept;

// Whether a line names the host, rank or process of what follows: "Node 48:", "=== Rank 3: a ===".
// `text` receives it without decoration.
bool is_headline(std::string_view line, std::string_view& text) noexcept;
// Whether a line is one word that may name a host or a file: "trace-node03".
bool is_name(std::string_view line) noexcept;

}  // namespace oddrank::triage
