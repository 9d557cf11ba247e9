// Reads text with stacks in it: py-spy, faulthandler, tracebacks, gdb, eu-stack, pystack, torch's
// debug server, and mixtures of them with log lines, prefixes and prose around them.
//
// Equal frames and equal stacks are stored once. Memory grows with what differs and with the number
// of threads, up to the limits below; what goes beyond is counted as dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
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
  Texts();
  std::uint32_t add(std::string_view text);
  std::string_view operator[](std::uint32_t number) const noexcept { return texts_[number]; }
  std::size_t size() const noexcept { return texts_.size(); }
  std::size_t dropped() const noexcept { return dropped_; }

 private:
  static constexpr std::size_t kMostBytes = 512 << 20;
  static constexpr std::size_t kOverhead = 128;  // of a text in the containers below
  std::size_t bytes_ = 0;
  std::size_t dropped_ = 0;
  std::deque<std::string> kept_;  // never moves what views point to
  std::vector<std::string_view> texts_;
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
};

// Who wrote a line, by the launcher's prefix in front of it: logs::Prefix with numbers of texts.
struct Writer : logs::WriterIds {
  std::uint32_t host = 0;
  std::uint32_t pod = 0;
  bool operator==(const Writer&) const = default;
};

// All members are numbers of texts, but for those that say otherwise.
struct Frame {
  std::uint32_t function = 0;
  std::uint32_t file = 0;
  std::int32_t line = 0;  // 0: unknown
  bool native = false;
  bool operator==(const Frame&) const = default;
};

// One dump of one process, as far as its text tells processes apart.
struct SeenProcess {
  std::uint32_t source = 0;  // as given to read()
  std::uint32_t line = 0;
  std::uint64_t pid = 0;  // 0: not said
  std::uint64_t parent = 0;
  std::uint32_t command = 0;
  std::uint32_t headline = 0;  // the last line above that names a host or rank
  Writer writer;
  std::uint32_t fatal = 0;  // faulthandler's reason
  bool timeout = false;     // faulthandler's timer has fired
  bool list = false;        // a list of innermost functions, without files
};

struct SeenThread {
  std::uint32_t process = 0;  // number of a SeenProcess
  std::uint32_t stack = 0;    // number of a stack
  std::uint32_t line = 0;
  std::uint64_t id = 0;  // 0: not said
  bool decimal = false;
  std::uint32_t name = 0;
  std::uint32_t state = 0;
  std::int8_t gil = -1;  // 1, 0; -1: not said
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

class StackReader {
 public:
  static constexpr std::size_t kLongestLine = 16 << 10;  // what is beyond is cut off
  static constexpr std::size_t kDeepest = 1024;          // frames of a stack
  static constexpr std::size_t kMostThreads = 4 << 20;
  static constexpr std::size_t kMostErrors = 1 << 20;
  static constexpr std::size_t kMostWriters = 1 << 16;
  static constexpr std::size_t kMostFrames = 4 << 20;
  static constexpr std::size_t kMostIds = 4096;        // threads of a process in faulthandler's
  static constexpr std::size_t kMostKept = 128 << 20;  // bytes of lines that are known again
  static constexpr std::size_t kLineOverhead = 128;

  StackReader();
  ~StackReader();
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;

  // Takes the next bytes of a source, cut anywhere. finish() ends the source.
  void read(std::uint32_t source, std::string_view bytes);
  void finish();
  std::uint32_t lines() const noexcept { return line_; }  // of the source, until now

  const Texts& texts() const noexcept { return texts_; }
  const std::vector<Frame>& frames() const noexcept { return frames_; }
  const std::vector<SeenProcess>& processes() const noexcept { return processes_; }
  const std::vector<SeenThread>& threads() const noexcept { return threads_; }
  const std::vector<SeenError>& errors() const noexcept { return errors_; }
  std::size_t stack_count() const noexcept { return stacks_.size(); }
  // Numbers of frames, innermost first.
  const std::vector<std::uint32_t>& stack(std::size_t number) const { return *stacks_[number]; }
  // Threads, errors, frames and texts beyond the limits.
  std::size_t dropped() const noexcept { return dropped_ + texts_.dropped(); }

 private:
  struct Stream;
  struct FrameHash {
    std::size_t operator()(const Frame& frame) const noexcept;
  };
  struct StackHash {
    std::size_t operator()(const std::vector<std::uint32_t>* stack) const noexcept;
  };
  struct StackEqual {
    bool operator()(const std::vector<std::uint32_t>* one,
                    const std::vector<std::uint32_t>* other) const noexcept {
      return *one == *other;
    }
  };

  void take_line(std::string_view line);
  Stream& stream_of(std::string_view& line);
  Stream& stream_of(const logs::Prefix& prefix);
  void take(Stream& stream, std::string_view line);
  bool take_frame(Stream& stream, std::string_view line);
  bool take_traceback(Stream& stream, std::string_view line);
  bool take_head(Stream& stream, std::string_view line);
  bool take_note(Stream& stream, std::string_view line);
  void take_other(Stream& stream, std::string_view line);
  void begin_process(Stream& stream);
  void begin_thread(Stream& stream, const ThreadLine& head);
  void begin_error(Stream& stream, SeenError::Kind kind, std::size_t indent);
  void end_error(Stream& stream, std::string_view text);
  void end_debugger_frame(Stream& stream);
  void end_stack(Stream& stream);
  void end_process(Stream& stream);
  std::uint32_t process_of(Stream& stream);
  std::uint32_t new_process(Stream& stream);
  void push(Stream& stream, std::uint32_t frame);
  std::uint32_t add_frame(const FrameLine& line);
  std::uint32_t add_frame(std::string_view text, const FrameLine& line);
  std::uint32_t add_stack(std::vector<std::uint32_t>& frames);
  void add_thread(SeenThread thread, std::uint32_t stack);

  Texts texts_;
  std::vector<Frame> frames_;
  std::unordered_map<Frame, std::uint32_t, FrameHash> frame_numbers_;
  // Lines of frames as written, so that a line is taken apart once.
  std::deque<std::string> kept_lines_;
  std::unordered_map<std::string_view, std::uint32_t> frame_lines_;
  std::size_t kept_bytes_ = 0;
  std::vector<std::unique_ptr<std::vector<std::uint32_t>>> stacks_;
  std::unordered_map<const std::vector<std::uint32_t>*, std::uint32_t, StackHash, StackEqual>
      stack_numbers_;
  std::vector<SeenProcess> processes_;
  std::vector<SeenThread> threads_;
  std::vector<SeenError> errors_;
  struct WriterHash {
    std::size_t operator()(const Writer& writer) const noexcept;
  };
  // Ranks write lines in turn: each has a state of its own.
  std::unordered_map<Writer, std::unique_ptr<Stream>, WriterHash> streams_;
  Stream* last_ = nullptr;
  std::string last_prefix_;
  std::string rest_;   // a line that is not complete
  std::string plain_;  // the line without escape sequences
  std::uint32_t source_ = 0;
  std::uint32_t line_ = 0;
  std::size_t dropped_ = 0;
};

// Feeds all files to the reader: file i is source i, up to line last[i] or so, 0: all. Returns (i,
// why) of each that can't be read.
std::vector<std::pair<std::uint32_t, std::string>> read_stack_files(
    StackReader& reader, const std::vector<std::string>& paths,
    const std::vector<std::uint64_t>& last = {});

// Whether a file has a stack or traceback in its first 16 MiB. False if it can't be read.
bool has_stacks(const std::string& path) noexcept;

}  // namespace oddrank::triage
