// A heap of sources, each at its next line. A source gives lines as long as no other one's are
// earlier, so that the heap is not touched for each line of a burst.
#include "logs/merger.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <memory>
#include <queue>

#include "logs/pieces.hpp"
#include "logs/raw_text.hpp"
#include "logs/timestamps.hpp"
#include "os/error.hpp"
#include "os/fd.hpp"
#include "os/whole_file.hpp"

namespace oddrank::logs {
namespace {

constexpr std::size_t kAllBuffers = 64u << 20;
// Pieces of so many bytes are held at once: a line of one byte takes a hundred.
constexpr std::size_t kSlice = 64u << 10;
constexpr std::size_t kOutputBlock = 1u << 20;  // bytes

// One log: its next lines, their place in time, and their output.
class Stream {
 public:
  // options: must outlive this.
  Stream(std::size_t number, const MergeSource& from, std::size_t buffer,
         const MergeOptions& options)
      : path_(from.path),
        buffer_(buffer, '\0'),
        reference_ns_(from.reference_ns),
        options_(options),
        numbers_([this, number](const Writer& who) {
          labels_.push_back(options_.label(number, who));
          return labels_.size() - 1;
        }) {
    struct stat info {};
    fd_ = open_regular(path_, info);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Returns the place of the line in hand; kNoTime: before all that name one.
  std::int64_t time() const { return time_; }
  // Whether a line has named its time.
  bool timed() const { return timed_; }

  // Moves to the next line, or part of a long one, and finds its time. False: the log is at its
  // end.
  bool next(Merged& merged) {
    begin_ = end_;
    while (begin_ == pieces_.size() && !at_end_) read();
    if (begin_ == pieces_.size()) return false;
    while (end_ < pieces_.size() && !pieces_[end_++].ends) {
    }
    if (!goes_on()) place(merged);
    return true;
  }

  // Appends the line in hand, as the options say, each piece behind its writer's label.
  void give(std::string& out) {
    for (std::size_t i = begin_; i < end_; ++i) append(pieces_[i], out);
  }
  // Ends the line that was appended last, if it has no end yet.
  void finish(std::string& out) {
    if (inside_) out += '\n';
    inside_ = false;
  }
  // Whether the next part belongs to the line that was given last.
  bool goes_on() const { return !pieces_[begin_].begins; }

 private:
  static constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();

  // Reads the pieces of the next lines, or of the next part of a long one.
  void read() {
    pieces_.clear();
    begin_ = end_ = 0;
    searched_ = false;
    const auto take = [this](const Piece& piece) { pieces_.push_back(piece); };
    if (left_.empty()) {
      ssize_t got = -1;
      while ((got = ::read(fd_.get(), buffer_.data(), buffer_.size())) < 0) {
        if (errno != EINTR) throw_errno("read " + path_);
      }
      left_ = {buffer_.data(), static_cast<std::size_t>(got)};
    }
    at_end_ = left_.empty();
    if (at_end_) return reader_.finish(take);
    std::size_t newline = left_.substr(0, kSlice).rfind('\n');
    if (newline == std::string_view::npos) newline = left_.find('\n', kSlice);
    const std::string_view lines = left_.substr(0, std::max(newline, newline + 1));
    left_.remove_prefix(lines.size());
    reader_.feed(lines, take);
  }

  // Counts the line in hand. Without a time, or with an earlier one, it takes the place of the line
  // before it; if there is none, of the first line with a time.
  void place(Merged& merged) {
    const std::optional<std::int64_t> time = time_of(pieces_[begin_]);
    ++merged.lines;
    if (!time) {
      ++merged.untimed;
      if (time_ == kNoTime && !std::exchange(searched_, true)) time_ = first_time();
      return;
    }
    timed_ = true;
    if (*time < time_) ++merged.late;
    time_ = std::max(time_, *time);
  }

  // Returns the time that a line names.
  std::optional<std::int64_t> time_of(const Piece& piece) {
    const auto time = find_time(piece.text, reference_ns_);
    if (!time || time->clock == Timestamp::Clock::boot) return {};
    return time->ns;
  }

  // Returns the first time in these lines: those before it go with it. kNoTime: there is none.
  std::int64_t first_time() {
    for (std::size_t i = end_; i < pieces_.size(); ++i) {
      if (!pieces_[i].begins) continue;
      if (const auto time = time_of(pieces_[i])) return *time;
    }
    return kNoTime;
  }

  void append(const Piece& piece, std::string& out) {
    const std::string& label = labels_[numbers_(piece.who)];
    if (piece.begins || piece.who.text > 0) {  // else the rest of a long line
      finish(out);
      out += label;
    }
    std::string_view text = piece.text;
    if (options_.strip) text.remove_prefix(piece.who.text);
    inside_ = !text.ends_with('\n');
    if (!options_.clean) {
      out += text;
      return;
    }
    append_for_terminal(text.substr(0, text.size() - (inside_ ? 0 : 1)), out);
    if (!inside_) out += '\n';
  }

  const std::string path_;
  Fd fd_;
  std::string buffer_;
  std::string_view left_;  // not read yet, in the buffer
  const std::int64_t reference_ns_;
  const MergeOptions& options_;
  std::vector<std::string> labels_;
  WriterNumbers numbers_;
  PieceReader reader_;
  std::vector<Piece> pieces_;        // the lines in hand
  std::size_t begin_ = 0, end_ = 0;  // the line in hand, among them
  std::int64_t time_ = kNoTime;
  bool timed_ = false;
  bool inside_ = false;  // the line that was appended last has no end yet
  bool at_end_ = false;
  bool searched_ = false;  // for the first time in these lines
};

// Raises the limit of open files as far as it goes.
void allow_files(std::size_t count) {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = count + 64;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Merged merge_logs(const std::vector<MergeSource>& sources, const MergeOptions& options) {
  allow_files(sources.size());
  const std::size_t count = std::max<std::size_t>(sources.size(), 1);
  const std::size_t buffer =
      std::clamp(kAllBuffers / count, std::size_t{4096}, std::size_t{1} << 20);
  Merged merged;
  std::vector<std::unique_ptr<Stream>> streams;
  using Next = std::pair<std::int64_t, std::size_t>;  // time, source
  std::priority_queue<Next, std::vector<Next>, std::greater<>> heap;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    streams.push_back(std::make_unique<Stream>(i, sources[i], buffer, options));
    if (streams[i]->next(merged)) heap.emplace(streams[i]->time(), i);
  }
  std::string output;
  while (!heap.empty()) {
    const std::size_t i = heap.top().second;
    heap.pop();
    Stream& stream = *streams[i];
    bool more = true;
    do {
      stream.give(output);
      if (output.size() >= kOutputBlock) {
        // A reader that takes nothing may be left: signals are heard.
        write_all(options.fd, output, "the merged log", options.pause);
        output.clear();
        options.pause();
      }
      more = stream.next(merged);
    } while (more && (stream.goes_on() || heap.empty() || Next(stream.time(), i) <= heap.top()));
    if (more) {
      heap.emplace(stream.time(), i);
    } else {
      stream.finish(output);
      if (!stream.timed()) merged.without_times.push_back(i);
      streams[i].reset();  // its buffers and its file
    }
  }
  write_all(options.fd, output, "the merged log", options.pause);
  return merged;
}

}  // namespace oddrank::logs
