// Reads text line by line, and keeps what was read: each launcher's prefix has a state of its own,
// since ranks interleave. In the order of the file: what was read, lines, what a line is by the
// lines above it, the begins and ends of threads, errors and processes; files; the tree.
#include "triage/stack_text.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <unordered_set>

#include "logs/patterns.hpp"
#include "os/encoding.hpp"
#include "os/error.hpp"
#include "os/mix.hpp"
#include "os/whole_file.hpp"

namespace oddrank::triage {
namespace {

constexpr std::size_t kLongestLine = 16 << 10;  // the rest is cut off
constexpr std::size_t kMostThreads = 4 << 20;
constexpr std::size_t kMostErrors = 1 << 20;
constexpr std::size_t kMostFrames = 4 << 20;
constexpr std::size_t kMostIds = 4096;        // threads of a process in faulthandler's
constexpr std::size_t kMostKept = 128 << 20;  // bytes of lines that are known again
constexpr std::size_t kLineOverhead = 128;

bool is_identifier(std::string_view text) noexcept {
  if (text.empty() || text.size() > 64 || logs::is_digit(text[0])) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '_' || logs::is_digit(c) || logs::is_letter(c); });
}

// Cuts the margin "  | " of a group of exceptions off; returns whether there was one.
std::string_view without_margin(std::string_view line, bool& margin) noexcept {
  const auto bar = line.find_first_not_of(' ');
  margin = bar != std::string_view::npos && bar >= 2 && (line[bar] == '|' || line[bar] == '+');
  if (!margin) return line;
  if (line.size() > bar + 1 && line[bar] == '+' && line[bar + 1] == '-') return {};
  return line.substr(std::min(line.size(), bar + 2));
}

}  // namespace

std::uint32_t Texts::add(std::string_view text) {
  if (const auto known = numbers_.find(text); known != numbers_.end()) return known->second;
  if (bytes_ + text.size() > kMostBytes) {
    ++dropped_;
    return 0;
  }
  bytes_ += text.size() + kOverhead;
  const std::string_view kept = kept_.emplace_back(text);
  const auto number = static_cast<std::uint32_t>(kept_.size() - 1);
  numbers_.emplace(kept, number);
  return number;
}

namespace {

class Lines : public Stacks {
 public:
  // Takes the next bytes of a source, cut anywhere. finish() ends the source.
  void read(std::uint32_t source, std::string_view bytes) {
    source_ = source;
    while (!bytes.empty()) {
      const void* found = std::memchr(bytes.data(), '\n', bytes.size());
      if (found == nullptr) {
        if (rest_.size() < kLongestLine) rest_.append(bytes.substr(0, kLongestLine - rest_.size()));
        return;
      }
      const auto size = static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data());
      std::string_view line = bytes.substr(0, size);
      bytes.remove_prefix(size + 1);
      if (!rest_.empty()) {
        if (rest_.size() < kLongestLine) rest_.append(line.substr(0, kLongestLine - rest_.size()));
        line = rest_;
      }
      take_line(line.substr(0, kLongestLine));
      rest_.clear();
    }
  }

  void finish() {
    if (!rest_.empty()) take_line(std::string_view(rest_).substr(0, kLongestLine));
    rest_.clear();
    for (const auto& stream : streams_) end_process(*stream);
    streams_.clear();
    numbers_.forget();
    last_ = nullptr;
    last_prefix_.clear();
    line_ = 0;
  }

  std::uint32_t lines() const noexcept { return line_; }  // of the source, until now

 private:
  struct FrameHash {
    static std::size_t mixed(std::size_t seed, std::uint64_t value) noexcept {
      return static_cast<std::size_t>(mix_bits(seed + kMixStep + value));
    }
    std::size_t operator()(const Frame& frame) const noexcept {
      return mixed(mixed(frame.function, frame.file),
                   (static_cast<std::uint64_t>(static_cast<std::uint32_t>(frame.line)) << 1) |
                       static_cast<std::uint64_t>(frame.native));
    }
  };

  // The state of one writer's stacks at a line of its text.
  struct Stream {
    enum class Mode : std::uint8_t { kOutside, kThread, kError, kList };
    std::uint32_t writer = 0;
    std::vector<SeenThread> threads;  // heads whose stack follows
    std::vector<std::uint32_t> frames;
    std::string debugger;    // gdb's frame whose lines may go on
    std::size_t indent = 0;  // of the stack's first frame, or of a traceback's head
    std::string headline;
    std::string name;             // a word that may be a headline
    std::uint32_t name_line = 0;  // where it stood
    std::uint32_t process = kNone;
    Mode mode = Mode::kOutside;
    bool outermost_first = false;
    bool python_only = false;  // gdb's py-bt: lines with File only
    // Of a process:
    bool has_main = false;
    bool gdb_rises = false;
    bool has_current = false;
    bool timeout = false;
    std::uint32_t fatal = 0;
    std::uint64_t gdb_number = 0;
    std::uint64_t pid = 0;
    std::uint64_t parent = 0;
    std::unordered_set<std::uint64_t, MixedHash> ids;  // of faulthandler's threads in this dump
    // "Process 12: command", which only py-spy's next lines prove to be no prose:
    std::uint64_t maybe_pid = 0;
    // In an error:
    std::string raised;  // the last name of a C++ exception
    std::string what;    // the last "what():"
    SeenError error;
    SeenError::Link link = SeenError::Link::kFirst;
  };

  void take_line(std::string_view line) {
    ++line_;
    if (line.find('\x1b') != std::string_view::npos) {
      logs::without_escapes(line, plain_);
      line = plain_;
    }
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    take(stream_of(line), line);
  }

  // Cuts the prefix off the line and returns its writer's state.
  Stream& stream_of(std::string_view& line) {
    // Nearly all lines continue the stack above them.
    if (last_ != nullptr) {
      if (last_prefix_.empty()) {
        if (line.starts_with("    ")) return *last_;
      } else if (line.starts_with(last_prefix_) &&
                 (line.size() == last_prefix_.size() || line[last_prefix_.size()] == ' ')) {
        line.remove_prefix(last_prefix_.size());
        return *last_;
      }
    }
    std::string_view quoted = line;  // as in mail: "> "
    while (quoted.starts_with('>')) quoted.remove_prefix(quoted.starts_with("> ") ? 2 : 1);
    const logs::Prefix prefix = logs::find_prefix(quoted);
    std::size_t size = line.size() - quoted.size() + prefix.text;
    // The space behind "[rank3]:" is there on some lines only: it counts as the text's.
    if (size >= 3 && line.substr(size - 3, 3) == "]: ") --size;
    last_prefix_ = line.substr(0, size);
    line.remove_prefix(size);
    return *(last_ = streams_[numbers_(prefix)].get());
  }

  std::uint32_t process_of(Stream& stream) {
    return stream.process == kNone ? new_process(stream) : stream.process;
  }

  std::uint32_t new_process(Stream& stream) {
    if (processes.size() >= kMostThreads) {
      ++dropped;
      return stream.process = static_cast<std::uint32_t>(processes.size() - 1);
    }
    const bool named = !stream.name.empty() && line_ <= stream.name_line + 3;
    processes.push_back({.source = source_,
                         .line = line_,
                         .pid = stream.pid,
                         .parent = stream.parent,
                         .headline = texts.add(named ? stream.name : stream.headline),
                         .writer = stream.writer,
                         .fatal = stream.fatal,
                         .timeout = stream.timeout});
    return stream.process = static_cast<std::uint32_t>(processes.size() - 1);
  }

  void push(Stream& stream, std::uint32_t frame) {
    if (frame == kNone) return;
    if (stream.frames.size() >= kDeepest) {
      ++dropped;
      if (!stream.outermost_first) return;
      // Keeps the innermost ones: a traceback ends with them.
      stream.frames.erase(stream.frames.begin(), stream.frames.begin() + kDeepest / 2);
    }
    stream.frames.push_back(frame);
  }

  std::uint32_t add_frame(const FrameLine& line) {
    if (frames.size() >= kMostFrames) {
      ++dropped;
      return kNone;
    }
    const Frame frame{texts.add(line.function), texts.add(line.file), line.line, line.native};
    const auto [at, fresh] =
        frame_numbers_.try_emplace(frame, static_cast<std::uint32_t>(frames.size()));
    if (fresh) frames.push_back(frame);
    return at->second;
  }

  // Adds the frame that a line is, if it is one; equal lines are taken apart once.
  bool push_line(Stream& stream, std::string_view line,
                 std::optional<FrameLine> (*frame_of)(std::string_view) noexcept) {
    if (const auto known = frame_lines_.find(line); known != frame_lines_.end()) {
      push(stream, known->second);
      return true;
    }
    const auto frame = frame_of(line);
    if (!frame) return false;
    const std::uint32_t number = add_frame(*frame);
    if (kept_bytes_ + line.size() < kMostKept) {
      kept_bytes_ += line.size() + kLineOverhead;
      frame_lines_.emplace(kept_lines_.emplace_back(line), number);
    }
    push(stream, number);
    return true;
  }

  std::uint32_t add_stack(const std::vector<std::uint32_t>& stack) {
    const auto bytes = [](const std::vector<std::uint32_t>& of) {
      return std::string_view(reinterpret_cast<const char*>(of.data()), of.size() * sizeof of[0]);
    };
    if (const auto known = stack_numbers_.find(bytes(stack)); known != stack_numbers_.end()) {
      return known->second;
    }
    const auto number = static_cast<std::uint32_t>(stacks.size());
    stack_numbers_.emplace(bytes(stacks.emplace_back(stack)), number);
    return number;
  }

  // Adds to one of the lists of what was seen; false if it is full.
  template <class Seen>
  bool add(std::vector<Seen>& list, const Seen& one, std::size_t most) {
    if (list.size() >= most) return ++dropped, false;
    list.push_back(one);
    return true;
  }

  void take(Stream& stream, std::string_view line) {
    if (stream.mode == Stream::Mode::kThread && take_frame(stream, line)) return;
    if (stream.mode == Stream::Mode::kError && take_traceback(stream, line)) return;
    const std::string_view text = trimmed(line);
    if (text.empty() || text.starts_with("```")) return;  // stacks go on after empty lines
    if (take_head(stream, line)) return;
    if (take_note(stream, text)) return;
    take_other(stream, line);
  }

  // Takes a line that continues a thread's stack. Returns false if it does not.
  bool take_frame(Stream& stream, std::string_view line) {
    if (line.empty()) return true;
    const std::size_t indent = indentation(line);
    const auto form = stream.threads.back().form;
    using Form = ThreadLine::Form;
    if (form == Form::kPySpy) {
      if (indent == 0 || indent == line.size()) return false;
      if (stream.frames.empty()) {
        stream.indent = indent;
      } else if (indent > stream.indent) {
        return true;  // arguments and locals
      } else if (indent < stream.indent) {
        return false;
      }
      return push_line(stream, line, py_spy_frame);
    }
    if (form == Form::kGdb || form == Form::kEuStack) {
      const std::string_view text = trimmed(line);
      if (text.starts_with('#') && !stream.python_only) {
        if (!debugger_frame(text)) return false;
        end_debugger_frame(stream);
        stream.debugger = text;
        return true;
      }
      if (text.find("Traceback (most recent call first)") != std::string_view::npos) {
        // py-bt after the frames of C: Python's own are worth more.
        end_debugger_frame(stream);
        stream.python_only = true;
        stream.frames.clear();
        return true;
      }
      if (stream.python_only) {
        if (indent == 0) return text.empty();
        if (const auto frame = file_frame(line)) push(stream, add_frame(*frame));
        return true;
      }
      if (indent > 0 && !stream.debugger.empty()) {
        if (stream.debugger.size() < kLongestLine) stream.debugger.append(" ").append(text);
        return true;
      }
      if (text == "()" && !stream.debugger.empty()) {
        stream.debugger.append(" ()");
        return true;
      }
      return text.empty();
    }
    // faulthandler and pystack
    if (indent == 0) return false;
    // Else it is source code, arguments, "<no Python frame>", "..." of a stack that was cut off.
    return push_line(stream, line, file_frame) || !thread_line(line);
  }

  // Takes a line of a traceback or of c10's frames. Returns false if it is none.
  bool take_traceback(Stream& stream, std::string_view line) {
    if (stream.error.kind == SeenError::Kind::kNative) {
      const auto frame = c10_frame(line);
      if (frame) push(stream, add_frame(*frame));
      if (!frame) end_error(stream, {});
      return frame.has_value();
    }
    bool margin = false;
    line = without_margin(line, margin);
    const std::string_view text = trimmed(line);
    if (text.empty()) return true;
    if (const auto frame = text.starts_with("File \"") ? file_frame(line) : std::nullopt) {
      push(stream, add_frame(*frame));
      return true;
    }
    if (indentation(line) > stream.indent) return true;  // source code, ^^^^, [Previous line ...
    if (stream.frames.empty() && text.starts_with("Traceback (")) return false;
    end_error(stream, text);
    return true;
  }

  // Begins the process that py-spy has named in the line above.
  void begin_process(Stream& stream) {
    if (stream.maybe_pid == 0) return;
    end_process(stream);
    stream.pid = std::exchange(stream.maybe_pid, 0);
  }

  // Takes a line that begins a process, a thread or a traceback.
  bool take_head(Stream& stream, std::string_view line) {
    std::string_view text = trimmed(line);
    if (text[0] == 'P') {
      if (const auto pid = process_line(text)) {
        end_stack(stream);
        stream.maybe_pid = pid;
        return true;
      }
      if (text.starts_with("Python v")) {
        begin_process(stream);
        return true;
      }
      // "Parent Process 122: python train.py", of py-spy dump --subprocesses
      if (text.starts_with("Parent Process ") && logs::take<"Parent ">(text)) {
        begin_process(stream);
        stream.parent = process_line(text);
        return true;
      }
    }
    const std::optional<ThreadLine> head = thread_line(text);
    if (head && head->form == ThreadLine::Form::kPySpy) begin_process(stream);
    stream.maybe_pid = 0;
    if (text.find("raceback (most recent call last)") != std::string_view::npos &&
        !text.starts_with("Traceback for thread")) {
      bool margin = false;
      const std::string_view inner = without_margin(line, margin);
      end_stack(stream);
      begin_error(stream, SeenError::Kind::kException, indentation(inner));
      if (margin && stream.link == SeenError::Link::kFirst) stream.link = SeenError::Link::kMember;
      return true;
    }
    if (const auto frame = raised_frame(text)) {
      begin_error(stream, SeenError::Kind::kNative, 0);
      push(stream, add_frame(*frame));
      return true;
    }
    if (head) {
      begin_thread(stream, *head);
      return true;
    }
    if (const auto pid = debugger_process(text)) {
      const bool at_end = text[0] == '[';
      if (at_end) set_pid(stream, pid);
      end_process(stream);
      if (!at_end) stream.pid = pid;
      return true;
    }
    if (text.starts_with("#0 ") && debugger_frame(text)) {  // pstack, or bt alone
      begin_thread(stream, {.form = ThreadLine::Form::kGdb});
      return take_frame(stream, line);
    }
    return false;
  }

  // Takes a line that says something about the stacks after it.
  bool take_note(Stream& stream, std::string_view text) {
    if (logs::take<"Fatal Python error: ">(text)) {
      end_process(stream);
      stream.fatal = texts.add(text);
    } else if (text.starts_with("Timeout (") && text.ends_with(")!")) {
      end_process(stream);
      stream.timeout = true;
    } else if (text.starts_with("The above exception was the direct cause of")) {
      stream.link = SeenError::Link::kCause;
    } else if (text.starts_with("During handling of the above exception")) {
      stream.link = SeenError::Link::kContext;
    } else if (logs::take<"what():">(text)) {
      stream.what = trimmed(text);
    } else if (logs::take<"terminate called after throwing an instance of '">(text)) {
      stream.raised = text.substr(0, text.find('\''));
      stream.what.clear();
    } else if (text.starts_with("Extension modules:") ||
               text.starts_with("Python runtime state:") ||
               text.starts_with("Current thread's C stack trace")) {
      end_stack(stream);
    } else {
      return false;
    }
    return true;
  }

  // Takes a line that is neither: headlines, lists of functions, prose.
  void take_other(Stream& stream, std::string_view line) {
    std::string_view text = trimmed(line);
    if (stream.mode == Stream::Mode::kList ||
        (stream.mode == Stream::Mode::kOutside && !stream.name.empty() &&
         line_ <= stream.name_line + 1)) {
      if (indentation(line) >= 2 && is_identifier(text)) {
        if (stream.mode == Stream::Mode::kOutside) {
          end_process(stream);
          stream.mode = Stream::Mode::kList;
        }
        stream.process = kNone;
        const std::uint32_t process = new_process(stream);
        processes[process].list = true;
        processes[process].headline = texts.add(stream.name);
        stream.frames.assign(1, add_frame({.function = text}));
        const std::uint32_t stack = add_stack(stream.frames);
        add(threads, {.process = process, .stack = stack, .line = line_}, kMostThreads);
        stream.process = kNone;
        return;
      }
      stream.mode = Stream::Mode::kOutside;
    }
    end_stack(stream);
    if (std::string_view headline; is_headline(line, headline)) {
      end_process(stream);
      stream.headline = headline;
    } else if (line.starts_with("# ") || line.starts_with("## ") || line.starts_with("### ")) {
      stream.headline.clear();  // another chapter
    }
    if (indentation(line) == 0 && is_name(text)) {
      stream.name = text;
      stream.name_line = line_;
    } else {
      stream.name.clear();
    }
  }

  // Says the pid of the process in hand, if no line has.
  void set_pid(Stream& stream, std::uint64_t pid) {
    stream.pid = pid;
    if (stream.process != kNone && processes[stream.process].pid == 0) {
      processes[stream.process].pid = pid;
    }
  }

  void begin_thread(Stream& stream, const ThreadLine& head) {
    using Form = ThreadLine::Form;
    const bool main = head.form == Form::kPySpy && head.name == "MainThread";
    // Several heads above one stack are several processes' main threads. Other heads without a
    // stack are threads without frames of Python.
    const bool shares = main && stream.mode == Stream::Mode::kThread && stream.frames.empty() &&
                        texts[stream.threads.back().name] == "MainThread";
    if (!shares) end_stack(stream);
    if (stream.mode == Stream::Mode::kError) end_error(stream, {});
    switch (head.form) {
      case Form::kPySpy:
        if (!main) break;
        if (stream.has_main && shares) {
          stream.process = kNone;  // keeps the threads that wait for their stack
          stream.pid = 0;
        } else if (stream.has_main) {
          end_process(stream);
        }
        stream.has_main = true;
        if (head.decimal && stream.pid == 0) set_pid(stream, head.id);
        break;
      case Form::kFaulthandler: {
        const bool again = stream.ids.contains(head.id) || stream.ids.size() >= kMostIds;
        if (again || (head.current && stream.has_current)) end_process(stream);
        stream.has_current |= head.current;
        stream.ids.insert(head.id);
        break;
      }
      case Form::kGdb:
      case Form::kEuStack:
        // Threads come in falling order, down to 1, or (-ascending) in rising order from 1 on.
        if (head.form == Form::kGdb && stream.gdb_number != 0 &&
            (stream.gdb_rises ? head.number <= stream.gdb_number
                              : head.number >= stream.gdb_number || head.number == 0)) {
          end_process(stream);
        }
        if (stream.gdb_number == 0) stream.gdb_rises = head.number == 1;
        if (head.form == Form::kGdb) stream.gdb_number = head.number;
        if (head.number == 1 && head.id != 0 && stream.pid == 0) set_pid(stream, head.id);
        break;
      case Form::kPystack:
        if (head.number == 0) break;
        end_process(stream);
        stream.pid = head.number;
        break;
    }
    const SeenThread thread{.process = process_of(stream),
                            .line = line_,
                            .id = head.id,
                            .name = texts.add(head.name),
                            .state = texts.add(head.state),
                            .gil = head.gil,
                            .wants_gil = head.wants_gil,
                            .current = head.current,
                            .form = head.form};
    if (!add(stream.threads, thread, kMostThreads)) return;
    stream.mode = Stream::Mode::kThread;
    stream.outermost_first = head.outermost_first;
    stream.python_only = false;
    stream.frames.clear();
  }

  void begin_error(Stream& stream, SeenError::Kind kind, std::size_t indent) {
    if (stream.mode == Stream::Mode::kError) end_error(stream, {});
    end_stack(stream);
    stream.error = {.kind = kind, .line = line_};
    stream.indent = indent;
    stream.frames.clear();
    stream.outermost_first = kind == SeenError::Kind::kException;
    stream.mode = Stream::Mode::kError;
  }

  void end_error(Stream& stream, std::string_view text) {
    SeenError error = stream.error;
    stream.mode = Stream::Mode::kOutside;
    error.link = stream.link;
    stream.link = SeenError::Link::kFirst;
    if (stream.frames.empty() && text.empty()) return;
    error.process = process_of(stream);
    if (error.kind == SeenError::Kind::kNative) {
      std::string& said = stream.raised;
      if (!said.empty() && !stream.what.empty()) said += ": ";
      error.text = texts.add(said += stream.what);
    } else {
      error.text = texts.add(text);
    }
    stream.raised.clear();
    stream.what.clear();
    if (stream.outermost_first) std::reverse(stream.frames.begin(), stream.frames.end());
    error.stack = add_stack(stream.frames);
    stream.frames.clear();
    add(errors, error, kMostErrors);
  }

  void end_debugger_frame(Stream& stream) {
    if (stream.debugger.empty()) return;
    if (const auto frame = debugger_frame(stream.debugger)) push(stream, add_frame(*frame));
    stream.debugger.clear();
  }

  // Gives the stack that was read to all threads above it.
  void end_stack(Stream& stream) {
    if (stream.mode != Stream::Mode::kThread) return;
    end_debugger_frame(stream);
    if (stream.outermost_first) std::reverse(stream.frames.begin(), stream.frames.end());
    const std::uint32_t stack = add_stack(stream.frames);
    for (SeenThread& thread : stream.threads) {
      thread.stack = stack;
      add(threads, thread, kMostThreads);
      // Without a current thread the first one stands for it.
      const bool first = !stream.has_current && stream.ids.size() <= 1;
      if (stream.fatal != 0 && (thread.current || first)) {
        add(errors,
            {.kind = SeenError::Kind::kFatal,
             .process = thread.process,
             .stack = stack,
             .line = thread.line,
             .text = stream.fatal},
            kMostErrors);
      }
    }
    stream.threads.clear();
    stream.frames.clear();
    stream.mode = Stream::Mode::kOutside;
  }

  void end_process(Stream& stream) {
    if (stream.mode == Stream::Mode::kError) end_error(stream, {});
    end_stack(stream);
    stream.mode = Stream::Mode::kOutside;
    stream.process = kNone;
    stream.has_main = stream.has_current = stream.timeout = false;
    stream.gdb_number = stream.pid = stream.parent = 0;
    stream.fatal = 0;
    stream.ids.clear();
  }

  std::unordered_map<Frame, std::uint32_t, FrameHash> frame_numbers_;
  // Lines of frames as written, so that a line is taken apart once.
  std::deque<std::string> kept_lines_;
  std::unordered_map<std::string_view, std::uint32_t> frame_lines_;
  std::size_t kept_bytes_ = 0;
  std::unordered_map<std::string_view, std::uint32_t> stack_numbers_;  // by the stacks' bytes
  // Ranks write lines in turn: each has a state of its own.
  std::vector<std::unique_ptr<Stream>> streams_;
  logs::WriterNumbers numbers_{[this](const logs::Writer& writer) {
    streams_.push_back(std::make_unique<Stream>());
    streams_.back()->writer = static_cast<std::uint32_t>(writers.size());
    writers.push_back(writer);
    return streams_.size() - 1;
  }};
  Stream* last_ = nullptr;
  std::string last_prefix_;
  std::string rest_;   // a line that is not complete
  std::string plain_;  // the line without escape sequences
  std::uint32_t source_ = 0;
  std::uint32_t line_ = 0;
};

}  // namespace

Stacks read_stack_text(std::string_view text, std::size_t piece) {
  Lines lines;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    lines.read(0, text.substr(0, piece));
  }
  lines.finish();
  return lines;
}

Stacks read_stack_files(const std::vector<std::string>& paths,
                        const std::vector<std::uint64_t>& last,
                        std::vector<std::pair<std::uint32_t, std::string>>& failed) {
  Lines lines;
  std::string buffer;
  for (std::uint32_t i = 0; i < paths.size(); ++i) {
    try {
      struct stat info {};
      const Fd fd = open_regular(paths[i], info);
      auto left = static_cast<std::size_t>(info.st_size);
      // Most files are one read: a second one, only to see their end, would cost as much again.
      read_chunks(
          fd, paths[i],
          [&](std::string_view bytes) {
            lines.read(i, bytes);
            left -= std::min(left, bytes.size());
            return left > 0 && (i >= last.size() || last[i] == 0 || lines.lines() < last[i]);
          },
          buffer);
    } catch (const Error& error) {
      failed.emplace_back(i, error.what());
    }
    lines.finish();
  }
  return lines;
}

bool has_stacks(const std::string& path) noexcept {
  static constexpr std::array<std::string_view, 8> kSigns{
      "most recent call ",     "MainThread\"", "\nThread ", "(LWP ", "\n#0 ", "\nTID ",
      "Traceback for thread ", ": Thread "};
  try {
    struct stat info {};
    const Fd fd = open_regular(path, info);
    std::string tail = "\n";
    bool found = false;
    read_chunks(fd, path, [&, left = 16](std::string_view bytes) mutable {
      tail.append(bytes);
      found = std::ranges::any_of(
          kSigns, [&](std::string_view sign) { return tail.find(sign) != std::string::npos; });
      tail.erase(0, tail.size() - std::min<std::size_t>(tail.size(), 64));
      return !found && --left > 0;
    });
    return found;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace oddrank::triage
