// Decides what a line of stacks is, by the lines above it.
#include <algorithm>

#include "triage/stack_stream.hpp"

namespace oddrank::triage {
namespace {

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
  if (const auto frame = raised_frame(text)) {
    begin_error(stream, SeenError::Kind::kNative, 0);
    push(stream, add_frame(*frame));
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
  if (stream.mode == Stream::Mode::kList || (stream.mode == Stream::Mode::kOutside &&
                                             stream.name != 0 && line_ <= stream.name_line + 1)) {
    if (indentation(line) >= 2 && is_identifier(text)) {
      if (stream.mode == Stream::Mode::kOutside) {
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
    stream.mode = Stream::Mode::kOutside;
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

}  // namespace oddrank::triage
