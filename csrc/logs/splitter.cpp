// The way of a piece: its writer -> the writer's file. A line that several wrote ends in each file.
#include "logs/splitter.hpp"

#include <fcntl.h>

#include <cerrno>

#include "os/error.hpp"
#include "os/whole_file.hpp"

namespace oddrank::logs {

std::size_t Splitter::add(const std::string& name) {
  shares_.emplace_back();
  return outputs_.add(name);
}

void Splitter::feed(std::string_view chunk) {
  reader_.feed(chunk, [this](const Piece& piece) { put(piece); });
}

void Splitter::finish() {
  reader_.finish([this](const Piece& piece) { put(piece); });
  end_lines();
  numbers_.forget();
}

void Splitter::put(const Piece& piece) {
  const std::size_t file = numbers_(piece.who);
  Share& share = shares_.at(file);  // a number that a caller gave
  const std::string_view text = strip_ ? piece.stripped() : piece.text;
  const auto is_open = std::find(open_.begin(), open_.end(), file);
  const bool ends = text.ends_with('\n');
  if (is_open == open_.end()) {
    if (text.empty()) return;
    ++share.lines;
    if (!ends) open_.push_back(file);
  } else if (ends) {
    open_.erase(is_open);
  }
  outputs_.write(file, text);
  share.bytes += text.size();
  if (piece.ends && !open_.empty()) end_lines();
}

void Splitter::end_lines() {
  for (const std::size_t file : open_) {
    outputs_.write(file, "\n");
    ++shares_[file].bytes;
  }
  open_.clear();
}

namespace {

constexpr std::size_t kMostOpen = 200;
constexpr std::size_t kFileBlock = 32u << 10;  // 64 ranks' blocks fit into a core's cache
constexpr std::size_t kMostWaiting = 64u << 20;

Fd open_output(const std::string& path, int flags) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0666));
  if (!fd) throw_errno("open " + path);
  return fd;
}

}  // namespace

std::size_t Outputs::add(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  open_output(path, O_CREAT | O_EXCL);
  files_.push_back({path, {}, {}});
  return files_.size() - 1;
}

void Outputs::write(std::size_t file, std::string_view text) {
  File& to = files_[file];
  to.waiting.append(text);
  waiting_ += text.size();
  if (to.waiting.size() >= kFileBlock) flush(to);
  if (waiting_ >= kMostWaiting) flush();
}

void Outputs::flush() {
  for (File& file : files_) {
    flush(file);
    file.waiting.shrink_to_fit();
  }
}

void Outputs::flush(File& file) {
  if (file.waiting.empty()) return;
  if (!file.fd) {
    if (open_ >= kMostOpen) close_all();
    file.fd = open_output(file.path, 0);
    ++open_;
  }
  write_all(file.fd.get(), file.waiting, file.path, [] {});
  waiting_ -= file.waiting.size();
  file.waiting.clear();
}

void Outputs::close_all() {
  for (File& file : files_) file.fd.reset();
  open_ = 0;
}

}  // namespace oddrank::logs
