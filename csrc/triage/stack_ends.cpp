// Begins and ends threads, errors and processes.
#include <algorithm>

#include "triage/stack_stream.hpp"

namespace oddrank::triage {

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
  stream.mode = Stream::Mode::kOutside;
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
  stream.mode = Stream::Mode::kOutside;
}

void StackReader::end_process(Stream& stream) {
  if (stream.mode == Stream::Mode::kError) end_error(stream, {});
  end_stack(stream);
  stream.mode = Stream::Mode::kOutside;
  stream.process = kNone;
  stream.has_main = stream.has_current = stream.timeout = false;
  stream.gdb_number = stream.pid = 0;
  stream.fatal = stream.command = 0;
  stream.ids.clear();
}

}  // namespace oddrank::triage
