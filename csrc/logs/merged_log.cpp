// Puts lines into their places, and writes them behind labels.
#include "logs/merged_log.hpp"

#include <unistd.h>

#include <cerrno>

#include "logs/terminal.hpp"
#include "logs/timestamps.hpp"
#include "os/error.hpp"

namespace oddrank::logs {

void MergeOutput::flush(const std::function<void()>& pause) {
  for (std::string_view left = block_; !left.empty();) {
    const ssize_t put = ::write(fd_, left.data(), left.size());
    if (put >= 0) {
      left.remove_prefix(static_cast<std::size_t>(put));
    } else if (errno == EINTR) {
      pause();
    } else {
      throw_errno("write the merged log");
    }
  }
  block_.clear();
}

MergedLog::MergedLog(std::size_t number, std::int64_t reference_ns, const MergeOptions& options)
    : reference_ns_(reference_ns), options_(options), numbers_([this, number](const Writer& who) {
        labels_.push_back(options_.label(number, who));
        return labels_.size() - 1;
      }) {}

std::optional<std::int64_t> MergedLog::time_of(std::string_view line, const Prefix& who) {
  const auto time = find_time(line, reference_ns_);
  if (!time || time->clock == Timestamp::Clock::boot) return {};
  if (!options_.shifted) return time->ns;
  return time->ns + labels_[numbers_(who)].offset_ns;
}

void MergedLog::append(const MergedPiece& piece, std::string& out) {
  const Label& label = labels_[numbers_(piece.who)];
  if (piece.begins || piece.who.text > 0) {  // else the rest of a long line
    finish(out);
    out += label.text;
  }
  std::string_view text = piece.text;
  if (options_.strip && !piece.packed) text.remove_prefix(piece.who.text);
  inside_ = !text.ends_with('\n');
  if (!options_.clean) {
    out += text;
    return;
  }
  clean_.clear();
  append_for_terminal(text.substr(0, text.size() - (inside_ ? 0 : 1)), clean_);
  if (!inside_) clean_ += '\n';
  out += clean_;
}

void MergedLog::finish(std::string& out) {
  if (inside_) out += '\n';
  inside_ = false;
}

}  // namespace oddrank::logs
