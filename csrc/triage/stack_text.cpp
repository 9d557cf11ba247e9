// Reads stacks line by line. Each launcher's prefix has a state of its own, since ranks interleave.
#include "triage/stack_text.hpp"

#include <algorithm>
#include <cstring>

#include "os/mix.hpp"

namespace oddrank::triage {
namespace {

std::size_t mixed(std::size_t seed, std::uint64_t value) noexcept {
  return static_cast<std::size_t>(mix_bits(seed + kMixStep + value));
}

bool is_identifier(std::string_view text) noexcept {
  if (text.empty() || text.size() > 64 || (text[0] >= '0' && text[0] <= '9')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
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

Texts::Texts() { add({}); }

std::uint32_t Texts::add(std::string_view text) {
  if (const auto known = numbers_.find(text); known != numbers_.end()) return known->second;
  const std::string_view kept = kept_.emplace_back(text);
  const auto number = static_cast<std::uint32_t>(texts_.size());
  texts_.push_back(kept);
  numbers_.emplace(kept, number);
  return number;
}

// What is known at a line of one prefix.
struct StackReader::Stream {
  enum class Mode : std::uint8_t { kNone, kThread, kError, kList };
  Mode mode = Mode::kNone;
  Writer writer;
  std::uint32_t headline = 0;
  std::uint32_t name_line = 0;  // line of `name`, a word that may be a headline
  std::uint32_t name = 0;
  std::uint32_t process = kNone;
  std::vector<SeenThread> threads;  // heads whose stack follows
  std::vector<std::uint32_t> frames;
  std::size_t indent = 0;  // of the stack's first frame, or of a traceback's head
  bool outermost_first = false;
  bool python_only = false;  // gdb's py-bt: lines with File only
  std::string debugger;      // gdb's frame whose lines may go on
  // Of a process:
  bool has_main = false;
  std::uint64_t gdb_number = 0;
  bool gdb_rises = false;
  std::vector<std::uint64_t> ids;  // of faulthandler's threads in this dump
  bool has_current = false;
  std::uint32_t fatal = 0;
  bool timeout = false;
  std::uint64_t pid = 0;
  std::uint32_t command = 0;
  // Of an error:
  SeenError error;
  SeenError::Link link = SeenError::Link::kFirst;
  std::uint32_t what = 0;  // the last "what():" or name of a C++ exception
};

StackReader::StackReader() = default;
StackReader::~StackReader() = default;

std::size_t StackReader::FrameHash::operator()(const Frame& frame) const noexcept {
  return mixed(mixed(frame.function, frame.file),
               (static_cast<std::uint64_t>(static_cast<std::uint32_t>(frame.line)) << 1) |
                   static_cast<std::uint64_t>(frame.native));
}

std::size_t StackReader::StackHash::operator()(
    const std::vector<std::uint32_t>* stack) const noexcept {
  std::size_t hash = stack->size();
  for (const std::uint32_t frame : *stack) hash = mixed(hash, frame);
  return hash;
}

void StackReader::read(std::uint32_t source, std::string_view bytes) {
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

void StackReader::finish() {
  if (!rest_.empty()) take_line(std::string_view(rest_).substr(0, kLongestLine));
  rest_.clear();
  for (auto& [writer, stream] : streams_) end_process(*stream);
  streams_.clear();
  last_ = nullptr;
  last_prefix_.clear();
  line_ = 0;
}

void StackReader::take_line(std::string_view line) {
  ++line_;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  take(stream_of(line), line);
}

// Cuts the prefix off the line and returns its writer's state.
StackReader::Stream& StackReader::stream_of(std::string_view& line) {
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
  return *(last_ = &stream_of(prefix));
}

StackReader::Stream& StackReader::stream_of(const logs::Prefix& prefix) {
  Writer writer{prefix.rank, prefix.local_rank,       prefix.task,           prefix.host_number,
                prefix.pid,  texts_.add(prefix.host), texts_.add(prefix.pod)};
  if (streams_.size() >= kMostWriters && !streams_.contains(writer)) writer = {};
  std::unique_ptr<Stream>& stream = streams_[writer];
  if (!stream) {
    stream = std::make_unique<Stream>();
    stream->writer = writer;
  }
  return *stream;
}

std::size_t StackReader::WriterHash::operator()(const Writer& writer) const noexcept {
  std::size_t hash = mixed(writer.host, writer.pod);
  for (const std::int64_t number :
       {writer.rank, writer.local_rank, writer.task, writer.host_number, writer.pid}) {
    hash = mixed(hash, static_cast<std::uint64_t>(number));
  }
  return hash;
}

void StackReader::take(Stream& stream, std::string_view line) {
  if (stream.mode == Stream::Mode::kThread && take_frame(stream, line)) return;
  if (stream.mode == Stream::Mode::kError && take_traceback(stream, line)) return;
  const std::string_view text = trimmed(line);
  if (text.empty() || text.starts_with("```")) return;  // stacks go on after empty lines
  if (take_head(stream, line)) return;
  if (take_note(stream, text)) return;
  take_other(stream, line);
}

// Takes a line that continues a thread's stack. Returns false if it does not.
bool StackReader::take_frame(Stream& stream, std::string_view line) {
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
    if (const auto known = frame_lines_.find(line); known != frame_lines_.end()) {
      push(stream, known->second);
      return true;
    }
    const auto frame = py_spy_frame(line);
    if (!frame) return false;
    const std::uint32_t number = add_frame(*frame);
    if (frame_lines_.size() < kMostFrames) {
      frame_lines_.emplace(kept_lines_.emplace_back(line), number);
    }
    push(stream, number);
    return true;
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
  if (const auto known = frame_lines_.find(line); known != frame_lines_.end()) {
    push(stream, known->second);
    return true;
  }
  if (const auto frame = file_frame(line)) {
    const std::uint32_t number = add_frame(*frame);
    if (frame_lines_.size() < kMostFrames) {
      frame_lines_.emplace(kept_lines_.emplace_back(line), number);
    }
    push(stream, number);
    return true;
  }
  // Lines of source code, arguments, "<no Python frame>", "..." of a stack that was cut off.
  return !thread_line(line);
}

// Takes a line of a traceback or of c10's frames. Returns false if it is none.
bool StackReader::take_traceback(Stream& stream, std::string_view line) {
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

// Takes a line that begins a process, a thread or a traceback.
bool StackReader::take_head(Stream& stream, std::string_view line) {
  std::string_view text = trimmed(line);
  if (text[0] == 'P') {
    std::string_view command;
    if (const auto pid = process_line(text, command)) {
      end_process(stream);
      stream.pid = *pid;
      stream.command = texts_.add(command);
      return true;
    }
    if (text.starts_with("Python v")) return true;
  }
  if (text.find("raceback (most recent call last)") != std::string_view::npos &&
      !text.starts_with("Traceback for thread")) {
    bool margin = false;
    const std::string_view inner = without_margin(line, margin);
    end_stack(stream);
    begin_error(stream, SeenError::Kind::kException, indentation(inner));
    if (margin && stream.link == SeenError::Link::kFirst) stream.link = SeenError::Link::kMember;
    return true;
  }
  if (text.find("(most recent call first):") != std::string_view::npos &&
      text.starts_with("Exception raised from ")) {
    begin_error(stream, SeenError::Kind::kNative, 0);
    FrameLine frame;
    const std::string_view place = text.substr(22, text.rfind(" (most") - 22);
    const auto at = place.find(" at ");
    frame.function = place.substr(0, at);
    std::string file(at == std::string_view::npos ? std::string_view{} : place.substr(at + 4));
    if (const auto colon = file.rfind(':'); colon != std::string::npos) {
      frame.line =
          static_cast<std::int32_t>(std::min(1e9, std::strtod(file.c_str() + colon + 1, nullptr)));
      frame.line = std::max(frame.line, 0);
      file.resize(colon);
    }
    frame.file = file;
    frame.native = true;
    push(stream, add_frame(frame));
    return true;
  }
  if (const auto head = thread_line(text)) {
    begin_thread(stream, *head);
    return true;
  }
  if (const auto pid = debugger_process(text)) {
    if (text[0] == '[') {  // at the end
      if (stream.process != kNone && processes_[stream.process].pid == 0) {
        end_stack(stream);
        processes_[stream.process].pid = *pid;
      }
      end_process(stream);
    } else {
      end_process(stream);
      stream.pid = *pid;
    }
    return true;
  }
  if (text.starts_with("#0 ") && debugger_frame(text)) {  // pstack, or bt alone
    ThreadLine head;
    head.form = ThreadLine::Form::kGdb;
    begin_thread(stream, head);
    return take_frame(stream, line);
  }
  return false;
}

// Takes a line that says something about the stacks after it.
bool StackReader::take_note(Stream& stream, std::string_view text) {
  if (text.starts_with("Fatal Python error: ")) {
    end_process(stream);
    stream.fatal = texts_.add(text.substr(20));
    return true;
  }
  if (text.starts_with("Timeout (") && text.ends_with(")!")) {
    end_process(stream);
    stream.timeout = true;
    return true;
  }
  if (text.starts_with("The above exception was the direct cause of")) {
    stream.link = SeenError::Link::kCause;
    return true;
  }
  if (text.starts_with("During handling of the above exception")) {
    stream.link = SeenError::Link::kContext;
    return true;
  }
  if (text.starts_with("what():")) {
    const std::string_view name = texts_[stream.what];
    const std::string_view what = trimmed(text.substr(7));
    stream.what =
        name.empty() ? texts_.add(what) : texts_.add(std::string(name).append(": ").append(what));
    return true;
  }
  constexpr std::string_view kTerminate = "terminate called after throwing an instance of '";
  if (text.starts_with(kTerminate)) {
    text.remove_prefix(kTerminate.size());
    stream.what = texts_.add(text.substr(0, text.find('\'')));
    return true;
  }
  if (text.starts_with("Extension modules:") || text.starts_with("Python runtime state:") ||
      text.starts_with("Current thread's C stack trace")) {
    end_stack(stream);
    return true;
  }
  return false;
}

// Takes a line that is neither: headlines, lists of functions, prose.
void StackReader::take_other(Stream& stream, std::string_view line) {
  std::string_view text = trimmed(line);
  if (stream.mode == Stream::Mode::kList ||
      (stream.mode == Stream::Mode::kNone && stream.name != 0 && line_ <= stream.name_line + 1)) {
    if (indentation(line) >= 2 && is_identifier(text)) {
      if (stream.mode == Stream::Mode::kNone) {
        end_process(stream);
        stream.mode = Stream::Mode::kList;
      }
      stream.process = kNone;
      const std::uint32_t process = new_process(stream);
      processes_[process].list = true;
      processes_[process].headline = stream.name;
      FrameLine frame;
      frame.function = text;
      stream.frames.assign(1, add_frame(frame));
      SeenThread thread;
      thread.process = process;
      thread.line = line_;
      add_thread(stream, thread, add_stack(stream.frames));
      stream.process = kNone;
      return;
    }
    stream.mode = Stream::Mode::kNone;
  }
  end_stack(stream);
  if (std::string_view headline; is_headline(line, headline)) {
    end_process(stream);
    stream.headline = texts_.add(headline);
  } else if (line.starts_with("# ") || line.starts_with("## ") || line.starts_with("### ")) {
    stream.headline = 0;  // another chapter
  }
  if (indentation(line) == 0 && is_name(text)) {
    stream.name = texts_.add(text);
    stream.name_line = line_;
  } else {
    stream.name = 0;
  }
}

void StackReader::begin_thread(Stream& stream, const ThreadLine& head) {
  using Form = ThreadLine::Form;
  const bool main = head.form == Form::kPySpy && head.name == "MainThread";
  // Several heads above one stack are several processes' main threads. Other heads without a stack
  // are threads without frames of Python.
  const bool shares = main && stream.mode == Stream::Mode::kThread && stream.frames.empty() &&
                      texts_[stream.threads.back().name] == "MainThread";
  if (!shares) end_stack(stream);
  if (stream.mode == Stream::Mode::kError) end_error(stream, {});
  switch (head.form) {
    case Form::kPySpy:
      if (main) {
        if (stream.has_main) {
          if (shares) {
            stream.process = kNone;  // keeps the threads that wait for their stack
            stream.pid = 0;
            stream.command = 0;
          } else {
            end_process(stream);
          }
        }
        stream.has_main = true;
        if (head.decimal && stream.pid == 0) {
          stream.pid = head.id;
          if (stream.process != kNone) processes_[stream.process].pid = head.id;
        }
      }
      break;
    case Form::kFaulthandler: {
      const bool again =
          std::find(stream.ids.begin(), stream.ids.end(), head.id) != stream.ids.end();
      if (again || (head.current && stream.has_current)) end_process(stream);
      stream.has_current |= head.current;
      if (stream.ids.size() < kMostWriters) stream.ids.push_back(head.id);
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
      if (head.form == Form::kGdb) {
        stream.gdb_number = head.number;
        if (head.number == 1 && head.id != 0) {
          if (stream.pid == 0) stream.pid = head.id;
          if (stream.process != kNone && processes_[stream.process].pid == 0) {
            processes_[stream.process].pid = head.id;
          }
        }
      }
      break;
    case Form::kPystack:
      break;
  }
  SeenThread thread;
  thread.process = process_of(stream);
  thread.line = line_;
  thread.id = head.id;
  thread.decimal = head.decimal;
  thread.name = texts_.add(head.name);
  thread.state = texts_.add(head.state);
  thread.gil = head.gil ? static_cast<std::int8_t>(*head.gil) : std::int8_t{-1};
  thread.wants_gil = head.wants_gil;
  thread.current = head.current;
  thread.form = head.form;
  if (stream.threads.size() >= kMostThreads) {
    ++dropped_;
    return;
  }
  stream.threads.push_back(thread);
  stream.mode = Stream::Mode::kThread;
  stream.outermost_first = head.outermost_first;
  stream.python_only = false;
  stream.frames.clear();
}

void StackReader::begin_error(Stream& stream, SeenError::Kind kind, std::size_t indent) {
  if (stream.mode == Stream::Mode::kError) end_error(stream, {});
  end_stack(stream);
  stream.error = {};
  stream.error.kind = kind;
  stream.error.line = line_;
  stream.indent = indent;
  stream.frames.clear();
  stream.outermost_first = kind == SeenError::Kind::kException;
  stream.mode = Stream::Mode::kError;
}

void StackReader::end_error(Stream& stream, std::string_view text) {
  SeenError error = stream.error;
  stream.mode = Stream::Mode::kNone;
  error.link = stream.link;
  stream.link = SeenError::Link::kFirst;
  if (stream.frames.empty() && text.empty()) return;
  if (errors_.size() >= kMostErrors) {
    ++dropped_;
    return;
  }
  error.process = process_of(stream);
  error.text = error.kind == SeenError::Kind::kNative ? stream.what : texts_.add(text);
  stream.what = 0;
  if (stream.outermost_first) std::reverse(stream.frames.begin(), stream.frames.end());
  error.stack = add_stack(stream.frames);
  stream.frames.clear();
  errors_.push_back(error);
}

void StackReader::end_debugger_frame(Stream& stream) {
  if (stream.debugger.empty()) return;
  if (const auto frame = debugger_frame(stream.debugger)) push(stream, add_frame(*frame));
  stream.debugger.clear();
}

// Gives the stack that was read to all threads above it.
void StackReader::end_stack(Stream& stream) {
  if (stream.mode != Stream::Mode::kThread) return;
  end_debugger_frame(stream);
  if (stream.outermost_first) std::reverse(stream.frames.begin(), stream.frames.end());
  const std::uint32_t stack = add_stack(stream.frames);
  for (const SeenThread& thread : stream.threads) {
    add_thread(stream, thread, stack);
    if (stream.fatal != 0 && (thread.current || !stream.has_current) &&
        errors_.size() < kMostErrors) {
      SeenError error;
      error.kind = SeenError::Kind::kFatal;
      error.process = thread.process;
      error.stack = stack;
      error.line = thread.line;
      error.text = stream.fatal;
      // Without a current thread the first one stands for it.
      if (thread.current || stream.ids.size() <= 1) errors_.push_back(error);
    }
  }
  stream.threads.clear();
  stream.frames.clear();
  stream.mode = Stream::Mode::kNone;
}

void StackReader::end_process(Stream& stream) {
  if (stream.mode == Stream::Mode::kError) end_error(stream, {});
  end_stack(stream);
  stream.mode = Stream::Mode::kNone;
  stream.process = kNone;
  stream.has_main = stream.has_current = stream.timeout = false;
  stream.gdb_number = stream.pid = 0;
  stream.fatal = stream.command = 0;
  stream.ids.clear();
}

std::uint32_t StackReader::process_of(Stream& stream) {
  return stream.process == kNone ? new_process(stream) : stream.process;
}

std::uint32_t StackReader::new_process(Stream& stream) {
  if (processes_.size() >= kMostThreads) {
    ++dropped_;
    return stream.process = static_cast<std::uint32_t>(processes_.size() - 1);
  }
  SeenProcess made;
  made.source = source_;
  made.line = line_;
  made.pid = stream.pid;
  made.command = stream.command;
  made.headline = stream.headline;
  if (stream.name != 0 && line_ <= stream.name_line + 3) made.headline = stream.name;
  made.writer = stream.writer;
  made.fatal = stream.fatal;
  made.timeout = stream.timeout;
  processes_.push_back(made);
  return stream.process = static_cast<std::uint32_t>(processes_.size() - 1);
}

void StackReader::push(Stream& stream, std::uint32_t frame) {
  if (frame == kNone) return;
  if (stream.frames.size() >= kDeepest) {
    ++dropped_;
    if (!stream.outermost_first) return;
    // Keeps the innermost ones: a traceback ends with them.
    stream.frames.erase(stream.frames.begin(), stream.frames.begin() + kDeepest / 2);
  }
  stream.frames.push_back(frame);
}

std::uint32_t StackReader::add_frame(const FrameLine& line) {
  if (frames_.size() >= kMostFrames) {
    ++dropped_;
    return kNone;
  }
  const Frame frame{texts_.add(line.function), texts_.add(line.file), line.line, line.native};
  const auto [at, fresh] =
      frame_numbers_.try_emplace(frame, static_cast<std::uint32_t>(frames_.size()));
  if (fresh) frames_.push_back(frame);
  return at->second;
}

std::uint32_t StackReader::add_stack(std::vector<std::uint32_t>& frames) {
  if (const auto known = stack_numbers_.find(&frames); known != stack_numbers_.end()) {
    return known->second;
  }
  const auto number = static_cast<std::uint32_t>(stacks_.size());
  stacks_.push_back(std::make_unique<std::vector<std::uint32_t>>(frames));
  stack_numbers_.emplace(stacks_.back().get(), number);
  return number;
}

void StackReader::add_thread(Stream& /*stream*/, SeenThread thread, std::uint32_t stack) {
  if (threads_.size() >= kMostThreads) {
    ++dropped_;
    return;
  }
  thread.stack = stack;
  threads_.push_back(thread);
}

}  // namespace oddrank::triage
