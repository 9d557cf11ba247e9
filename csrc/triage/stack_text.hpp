// Reads text with stacks in it: py-spy, faulthandler, tracebacks, gdb, eu-stack, pystack, torch's
// debug server, and mixtures of them with log lines, prefixes and prose around them.
//
// Equal frames and equal stacks are stored once. Memory grows with what differs and with the number
// of threads, up to the limits below; what goes beyond is counted as dropped.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "logs/prefixes.hpp"
#include "triage/stack_lines.hpp"

namespace oddrank::triage {

constexpr std::uint32_t kNone = UINT32_MAX;

// Stores equal texts once, numbered from 0, which is the empty text. Past its limit a new text is
// the empty one, and counted as dropped.
class Texts {
 public:
  Texts() { add({}); }
  Texts(Texts&&) = default;  // a copy's views would point into this
  std::uint32_t add(std::string_view text);
  std::string_view operator[](std::uint32_t number) const noexcept { return kept_[number]; }
  std::size_t size() const noexcept { return kept_.size(); }
  std::size_t dropped() const noexcept { return dropped_; }

 private:
  static constexpr std::size_t kMostBytes = 512 << 20;
  static constexpr std::size_t kOverhead = 128;  // of a text in the containers below
  std::size_t bytes_ = 0;
  std::size_t dropped_ = 0;
  std::deque<std::string> kept_;  // never moves what views point to
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
};

// All members are numbers of texts, but for those that say otherwise.
struct Frame {
  std::uint32_t function = 0;
  std::uint32_t file = 0;
  std::int32_t line = 0;  // line number; 0: unknown
  bool native = false;
  bool operator==(const Frame&) const = default;
};

// One dump of one process, as far as its text tells processes apart.
struct SeenProcess {
  std::uint32_t source = 0;  // number of a file
  std::uint32_t line = 0;
  std::uint64_t pid = 0;  // of the process; 0: not said
  std::uint64_t parent = 0;
  std::uint32_t headline = 0;  // the last line above that names a host or rank
  std::uint32_t writer = 0;    // number of a writer, by the launcher's prefix
  std::uint32_t fatal = 0;     // faulthandler's reason
  bool timeout = false;        // faulthandler's timer has fired
  bool list = false;           // a list of innermost functions, without files
};

struct SeenThread {
  std::uint32_t process = 0;  // number of a SeenProcess
  std::uint32_t stack = 0;    // number of a stack
  std::uint32_t line = 0;
  std::uint64_t id = 0;  // of the thread; 0: not said
  std::uint32_t name = 0;
  std::uint32_t state = 0;
  std::optional<bool> gil{};
  bool wants_gil = false;
  bool current = false;
  ThreadLine::Form form = ThreadLine::Form::kPySpy;
};

// An exception's traceback, a C++ exception with c10's frames, or a fatal error of Python.
struct SeenError {
  enum class Kind : std::uint8_t { kException, kNative, kFatal };
  enum class Link : std::uint8_t { kFirst, kCause, kContext, kMember };  // to the one above it
  Kind kind = Kind::kException;
  Link link = Link::kFirst;
  std::uint32_t process = 0;
  std::uint32_t stack = kNone;
  std::uint32_t line = 0;
  std::uint32_t text = 0;  // its last line: "ValueError: x"
};

// The stacks of all sources.
struct Stacks {
  Texts texts;
  std::vector<Frame> frames;
  std::deque<std::vector<std::uint32_t>> stacks;  // numbers of frames, innermost first
  std::vector<logs::Writer> writers;
  std::vector<SeenProcess> processes;
  std::vector<SeenThread> threads;
  std::vector<SeenError> errors;
  std::size_t dropped = 0;  // threads, errors and frames beyond the limits
};

constexpr std::size_t kDeepest = 1024;  // frames of a stack

// Reads a text, in pieces of a size.
Stacks read_stack_text(std::string_view text, std::size_t piece = SIZE_MAX);

// Reads files: file i is source i, up to line last[i] or so, 0: all. failed: receives (i, why) of
// each that can't be read.
Stacks read_stack_files(const std::vector<std::string>& paths,
                        const std::vector<std::uint64_t>& last,
                        std::vector<std::pair<std::uint32_t, std::string>>& failed);

// Whether a file has a stack or traceback in its first 16 MiB. False if it can't be read.
bool has_stacks(const std::string& path) noexcept;

}  // namespace oddrank::triage
