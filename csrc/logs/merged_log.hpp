// What all merging shares: one log on its way into the merged one, and where the lines are written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "logs/pieces.hpp"
#include "logs/prefixes.hpp"
#include "logs/writers.hpp"

namespace oddrank::logs {

// What is put in front of a writer's lines, and how much later than its clock it is in truth.
struct Label {
  std::string text;
  std::int64_t offset_ns = 0;
};

struct MergeOptions {
  int fd = 1;
  bool strip = false;    // leave launchers' prefixes out
  bool shifted = false;  // labels have offsets: each line's writer is found before its turn
  bool clean = false;    // for terminals: without escape sequences and control characters
  std::function<Label(std::size_t source, const Writer&)> label;
  std::function<void()> pause;  // called now and then, and at signals; may throw
};

struct Merged {
  std::uint64_t lines = 0;
  std::uint64_t untimed = 0;  // that stayed behind the line before them
  std::uint64_t late = 0;     // whose time was before that of a line of the same file before them
  std::vector<std::size_t> with_times;     // sources of which a line names a time
  std::vector<std::size_t> without_times;  // sources that have lines, and none of them does
};

// A piece of a line. text: what is written of it.
struct MergedPiece {
  explicit MergedPiece(const Piece& piece)
      : text(piece.text),
        said(piece.said),
        who(piece.who),
        packed(piece.packed),
        begins(piece.begins) {}
  std::string_view text;
  std::string_view said;
  Prefix who;
  bool packed;
  bool begins;
};

// Writes to a descriptor in large blocks.
class MergeOutput {
 public:
  explicit MergeOutput(int fd) : fd_(fd) {}
  std::string& block() { return block_; }
  bool full() const { return block_.size() >= kBlock; }
  // Calls `pause` where a signal interrupts it: a reader that takes nothing may be left. Throws
  // SystemError if the output can't be written.
  void flush(const std::function<void()>& pause);

 private:
  static constexpr std::size_t kBlock = 1u << 20;
  const int fd_;
  std::string block_;
};

// One log on its way into a merged one: the place of its lines in time, and how they are written.
class MergedLog {
 public:
  static constexpr std::int64_t kNoTime = std::numeric_limits<std::int64_t>::min();

  // reference_ns: for times without a year, see find_time(). options: must outlive this.
  MergedLog(std::size_t number, std::int64_t reference_ns, const MergeOptions& options);
  MergedLog(const MergedLog&) = delete;
  MergedLog& operator=(const MergedLog&) = delete;

  // Returns the time that a line names, on the clock that its writer's label gives.
  std::optional<std::int64_t> time_of(std::string_view line, const Prefix& who);
  // Counts a line. Without a time, or with an earlier one, its place is that of the line before it;
  // if there is none, the first line's is first().
  template <class First>
  void place(std::optional<std::int64_t> time, Merged& merged, First&& first) {
    ++merged.lines;
    if (!time) {
      ++merged.untimed;
      if (time_ == kNoTime) time_ = first();
      return;
    }
    timed_ = true;
    if (*time < time_) ++merged.late;
    time_ = std::max(time_, *time);
  }
  // Returns the place of the line that was counted last; kNoTime: before all that name one.
  std::int64_t time() const { return time_; }
  bool timed() const { return timed_; }

  // Appends a piece to `out`, as the options say, behind its writer's label.
  void append(const MergedPiece& piece, std::string& out);
  // Ends the line that was appended last, if it has no end yet.
  void finish(std::string& out);

 private:
  const std::int64_t reference_ns_;
  const MergeOptions& options_;
  std::vector<Label> labels_;
  WriterNumbers numbers_;
  std::int64_t time_ = kNoTime;
  bool timed_ = false;
  bool inside_ = false;  // the line that was appended last has no end yet
  std::string clean_;
};

}  // namespace oddrank::logs
