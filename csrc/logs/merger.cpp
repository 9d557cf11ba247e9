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
#include "logs/prefixes.hpp"
#include "logs/raw_text.hpp"
#include "logs/timestamps.hpp"
#include "os/error.hpp"
#include "os/fd.hpp"
#include "os/whole_file.hpp"

namespace oddrank::logs {
namespace {

constexpr std::size_t kAllBuffers = 64u << 20;
constexpr std::size_t kOutputBlock = 1u << 20;  // of the output

// Writes what is in the block. Calls `pause` where a signal interrupts it: a reader that takes
// nothing may be left. Throws SystemError if it can't be written.
void flush(std::string& block, const MergeOptions& options) {
  for (std::string_view left = block; !left.empty();) {
    const ssize_t put = ::write(options.fd, left.data(), left.size());
    if (put >= 0) {
      left.remove_prefix(static_cast<std::size_t>(put));
    } else if (errno == EINTR) {
      options.pause();
    } else {
      throw_errno("write the merged log");
    }
  }
  block.clear();
}

// Reads a file line by line through a buffer of its own. Longer lines come in several parts.
class Source {
 public:
  Source(const MergeSource& from, std::size_t buffer) : path_(from.path) {
    struct stat info {};
    fd_ = open_regular(path_, info);
    buffer_.resize(buffer);
  }

  // Moves to the next line, or part of one. False: the file is at its end.
  bool next() {
    begin_ += line_.size();
    while (true) {
      const std::string_view left(buffer_.data() + begin_, end_ - begin_);
      const std::size_t newline = left.find('\n');
      if (newline != std::string_view::npos || at_end_ || left.size() == buffer_.size()) {
        line_ = left.substr(0, newline == std::string_view::npos ? newline : newline + 1);
        return !line_.empty();
      }
      read_more();
    }
  }

  std::string_view line() const { return line_; }
  // Returns what is in the buffer from this line on.
  std::string_view ahead() const { return {buffer_.data() + begin_, end_ - begin_}; }
  // Returns how many bytes of the file have been read into the buffer so far.
  std::uint64_t end() const { return read_; }

 private:
  void read_more() {
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= std::exchange(begin_, 0);
    line_ = {};
    while (true) {
      const ssize_t got = ::read(fd_.get(), buffer_.data() + end_, buffer_.size() - end_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw_errno("read " + path_);
      end_ += static_cast<std::size_t>(got);
      read_ += static_cast<std::uint64_t>(got);
      at_end_ = got == 0;
      return;
    }
  }

  const std::string path_;
  Fd fd_;
  std::string buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what is left in the buffer
  std::uint64_t read_ = 0;
  std::string_view line_;
  bool at_end_ = false;
};

// One log: what comes next, its place in time, and how it is written.
class Stream {
 public:
  // options: must outlive this.
  Stream(std::size_t number, const MergeSource& from, std::size_t buffer,
         const MergeOptions& options)
      : source_(from, buffer),
        reference_ns_(from.reference_ns),
        options_(options),
        numbers_([this, number](const Writer& who) {
          labels_.push_back(options_.label(number, who));
          return labels_.size() - 1;
        }) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Returns the place of the line in hand; kNoTime: before all that name one.
  std::int64_t time() const { return time_; }
  // Whether a line has named its time.
  bool timed() const { return timed_; }

  // Moves to the next line and finds its time. False: the log is at its end.
  bool next(Merged& merged) {
    read();
    if (given_.empty()) return false;
    if (!goes_on()) place(merged);
    return true;
  }

  // Appends the line in hand, as the options say, each piece behind its writer's label.
  void give(std::string& out) {
    for (const Piece& piece : given_) append(piece, out);
  }
  // Ends the line that was appended last, if it has no end yet.
  void finish(std::string& out) {
    if (inside_) out += '\n';
    inside_ = false;
  }
  // Whether the next part belongs to the line that was given last.
  bool goes_on() const { return !given_[0].begins; }

 private:
  static constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();

  // Reads until there is a line, or a part of a long one.
  void read() {
    given_.clear();
    const auto take = [this](const Piece& piece) { given_.push_back(piece); };
    while (given_.empty() && !at_end_) {
      at_end_ = !source_.next();
      if (at_end_) {
        reader_.finish(take);
      } else {
        reader_.feed(source_.line(), take);
      }
    }
  }

  // Counts the line in hand. Without a time, or with an earlier one, its place is that of the line
  // before it; if there is none, that of the first line with a time.
  void place(Merged& merged) {
    const std::optional<std::int64_t> time = time_of(given_[0].text, given_[0].who);
    ++merged.lines;
    if (!time) {
      ++merged.untimed;
      if (time_ == kNoTime) time_ = first_time();
      return;
    }
    timed_ = true;
    if (*time < time_) ++merged.late;
    time_ = std::max(time_, *time);
  }

  // Returns the time that a line names, on the clock that its writer's label gives.
  std::optional<std::int64_t> time_of(std::string_view line, const Prefix& who) {
    const auto time = find_time(line, reference_ns_);
    if (!time || time->clock == Timestamp::Clock::boot) return {};
    if (!options_.shifted) return time->ns;
    return time->ns + labels_[numbers_(who)].offset_ns;
  }

  // Returns the first time in the buffer: lines before it go with it. kNoTime: there is none.
  // Searches no line twice: a log may name no time at all.
  std::int64_t first_time() {
    std::string_view ahead = source_.ahead();
    const std::uint64_t begin = source_.end() - ahead.size();
    if (std::exchange(searched_, source_.end()) == source_.end()) return kNoTime;
    if (begin < untimed_) ahead.remove_prefix(untimed_ - begin);
    while (!ahead.empty()) {
      const std::size_t newline = ahead.find('\n');
      const std::string_view line = ahead.substr(0, newline);
      if (const auto time = time_of(line, find_prefix(line))) return *time;
      if (newline == std::string_view::npos) break;  // its time may come with the next bytes
      ahead.remove_prefix(newline + 1);
    }
    untimed_ = source_.end() - ahead.size();
    return kNoTime;
  }

  void append(const Piece& piece, std::string& out) {
    const Label& label = labels_[numbers_(piece.who)];
    if (piece.begins || piece.who.text > 0) {  // else the rest of a long line
      finish(out);
      out += label.text;
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

  Source source_;
  const std::int64_t reference_ns_;
  const MergeOptions& options_;
  std::vector<Label> labels_;
  WriterNumbers numbers_;
  PieceReader reader_;
  std::vector<Piece> given_;  // of the line in hand
  std::int64_t time_ = kNoTime;
  bool timed_ = false;
  bool inside_ = false;  // the line that was appended last has no end yet
  bool at_end_ = false;
  std::uint64_t untimed_ = 0;   // bytes of the log, from its beginning, whose lines name no time
  std::uint64_t searched_ = 0;  // bytes of the log that were in the buffer at the last search
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
        flush(output, options);
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
  flush(output, options);
  return merged;
}

std::vector<std::int64_t> last_times(
    const std::string& path, const std::vector<std::pair<std::uint64_t, std::size_t>>& wanted,
    std::int64_t reference_ns, WriterNumbers::Ask number) {
  std::vector<std::int64_t> found, last;
  WriterNumbers numbers(std::move(number));
  std::optional<Timestamp::Clock> clock;
  const auto take = [&](const Piece& piece) {
    const std::size_t writer = numbers(piece.who);
    last.resize(std::max(last.size(), writer + 1));
    for (; found.size() < wanted.size() && wanted[found.size()].first <= piece.line;) {
      const std::size_t of = wanted[found.size()].second;
      found.push_back(of < last.size() ? last[of] : 0);
    }
    const auto time = find_time(piece.text, reference_ns);
    if (!time || time->ns <= 0 || time->clock == Timestamp::Clock::boot) return;
    if (clock.value_or(time->clock) != time->clock) return;
    clock = time->clock;
    last[writer] = std::max(last[writer], time->ns);
  };
  PieceReader reader;
  struct stat info {};
  read_chunks(open_regular(path, info), path, [&](std::string_view chunk) {
    reader.feed(chunk, take);
    return found.size() < wanted.size();
  });
  reader.finish(take);
  found.resize(wanted.size());
  return found;
}

}  // namespace oddrank::logs
