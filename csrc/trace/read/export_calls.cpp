// Puts the text of calls together from pieces that were made once.
#include "trace/read/export_calls.hpp"

#include <algorithm>

#include "trace/read/json_text.hpp"

namespace oddrank::trace {
namespace {

constexpr std::size_t kDeepest = 512;  // that Perfetto shows of a stack

std::string_view base_name(std::string_view file) noexcept {
  return file.substr(file.rfind('/') + 1);  // without one: from 0
}

}  // namespace

void ExportCalls::set_thread(const Thread& thread) noexcept {
  tid_ = thread.tid;
  ended_ = thread.state == ThreadState::kEnded;
}

void ExportCalls::open(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) {
  if (depth >= kDeepest) {
    ++out_.left_out;
    return;
  }
  out_.begin_event('B', tid_, out_.time(tsc));
  out_.text += text_of(code).call;
  if (why == Why::kCut) out_.text += ",\"cut\":\"began before what is left of the record\"";
  out_.text += "}}";
}

void ExportCalls::close(std::uint64_t tsc, std::uint32_t /*code*/, std::size_t depth, Why why) {
  if (depth >= kDeepest) return;
  const bool runs = why == Why::kEnd && !ended_;
  out_.begin_event('E', tid_, runs ? std::max(out_.end(), out_.time(tsc)) : out_.time(tsc));
  if (runs) out_.text += ",\"args\":{\"open\":\"to the end of the record\"}";
  if (why == Why::kUnwind) out_.text += ",\"args\":{\"left by\":\"an exception\"}";
  if (why == Why::kGap) out_.text += ",\"args\":{\"cut\":\"events are missing from here on\"}";
  out_.text += '}';
}

void ExportCalls::line(std::uint64_t tsc, Place place) {
  if (!lines_) return;
  const Code* code = names_.dictionary().code(place.code());
  const auto line = code == nullptr ? std::nullopt : names_.line(*code, place);
  out_.begin_event('i', tid_, out_.time(tsc));
  out_.text += text_of(place.code()).line;
  if (line) {
    append_number(out_.text, *line);
  } else {
    out_.text += '?';
  }
  out_.text += "\"}";
}

void ExportCalls::gap(std::uint64_t tsc) {
  out_.instant(tid_, out_.time(tsc), "events may be missing before this");
}

const ExportCalls::Text& ExportCalls::text_of(std::uint32_t id) {
  const auto [found, is_new] = texts_.try_emplace(id);
  Text& text = found->second;
  if (!is_new) return text;
  const Frame frame = names_.frame(Place::of(id, kNoPosition, 0));
  const Code* code = names_.dictionary().code(id);
  text.call = ",\"cat\":\"call\",\"name\":\"";
  append_escaped(text.call, frame.function, kLongestText);
  text.call += "\",\"args\":{\"at\":\"";
  if (code == nullptr) {
    text.call += '?';
  } else {
    append_escaped(text.call, frame.file, kLongestText);
    text.call += ':';
    append_number(text.call, code->first_line);
  }
  text.call += '"';
  text.line = ",\"s\":\"t\",\"cat\":\"line\",\"name\":\"";
  append_escaped(text.line, base_name(frame.file), kLongestText);
  text.line += ':';
  return text;
}

}  // namespace oddrank::trace
