// Reads text line by line, and keeps what was read: each launcher's prefix has a state of its own,
// since ranks interleave.
#include "triage/stack_text.hpp"

#include <algorithm>
#include <cstring>

#include "os/mix.hpp"
#include "triage/stack_stream.hpp"

namespace oddrank::triage {
namespace {

std::size_t mixed(std::size_t seed, std::uint64_t value) noexcept {
  return static_cast<std::size_t>(mix_bits(seed + kMixStep + value));
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
