// The way of a piece: its writer -> the writer's file. A line that several wrote ends in each file.
#include "logs/splitter.hpp"

#include <algorithm>

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

}  // namespace oddrank::logs
