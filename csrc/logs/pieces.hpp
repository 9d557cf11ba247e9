// Cuts a log into pieces, each of one process: a line, or a part of one that several wrote.
#pragma once

#include <algorithm>

#include "logs/prefixes.hpp"
#include "logs/raw_text.hpp"

namespace oddrank::logs {

// A part of a line by one process. Its views live until the reader is fed once more.
struct Piece {
  std::string_view text;  // as in the file; the last one of a line has the line's end
  Prefix who;
  std::uint64_t line = 0;  // the line of the log, from 1
  bool begins = false;     // it begins its line
  bool ends = false;       // it ends its line, or the file

  // Returns it without launchers' prefixes.
  std::string_view stripped() const { return text.substr(who.text); }
};

// Reads a log chunk by chunk. take(const Piece&) gets all bytes, each once and in their order.
//
// The writer changes within a line where another process's prefix comes: behind a carriage return
// (progress bars), or in the middle (a torn line). Lines longer than kLongest come as several
// pieces.
class PieceReader {
 public:
  static constexpr std::size_t kLongest = 256u << 10;

  explicit PieceReader(std::size_t longest = kLongest) : longest_(longest) {}

  template <class Take>
  void feed(std::string_view chunk, Take&& take) {
    bars_ = chunk.find('\r') != std::string_view::npos;
    while (!chunk.empty()) {
      const std::size_t newline = chunk.find('\n');
      const bool whole = newline != std::string_view::npos;
      const std::string_view part = chunk.substr(0, whole ? newline + 1 : newline);
      chunk.remove_prefix(part.size());
      if (carry_.empty() && (whole || part.size() >= longest_)) {
        line(part, whole, take);
        continue;
      }
      carry_.append(part);
      if (whole || carry_.size() >= longest_) carried(whole, take);
    }
  }

  // Gives the last line, if it has no end.
  template <class Take>
  void finish(Take&& take) {
    if (!carry_.empty()) carried(true, take);
    inside_ = false;
  }

 private:
  template <class Take>
  void carried(bool whole, Take& take) {
    const bool bars = std::exchange(bars_, true);  // the chunks before are not known to have none
    line_.swap(carry_);
    carry_.clear();
    line(line_, whole, take);
    bars_ = bars;
  }

  template <class Take>
  void line(std::string_view text, bool whole, Take& take) {
    const bool begins = !std::exchange(inside_, !whole);
    if (begins) ++number_;
    const Prefix who = begins ? find_prefix(text) : writer_.prefix();
    // A long line may be cut where another writer comes.
    const std::size_t from = begins ? std::max(who.text, std::size_t{1}) : 0;
    if (is_mixed(text, from)) return mixed(text, who, from, begins, whole, take);
    take(Piece{text, who, number_, begins, whole});
    if (!whole && begins) writer_ = Writer(who);
  }

  bool is_mixed(std::string_view line, std::size_t from) const {
    const std::size_t bar = bars_ ? line.find('\r') : std::string_view::npos;
    const bool inner = bar != std::string_view::npos &&
                       line.find_first_not_of("\r\n", bar) != std::string_view::npos;
    return inner || next_torn(line, from) != std::string_view::npos;
  }

  template <class Take>
  void mixed(std::string_view text, Prefix who, std::size_t at, bool begins, bool whole,
             Take& take) {
    constexpr auto kNone = std::string_view::npos;
    std::size_t from = 0;  // begin of the piece in hand
    std::size_t torn = next_torn(text, at), bar = text.find('\r', at == 0 ? 0 : at - 1);
    while (true) {
      const std::size_t next = std::min(torn, bar == kNone ? bar : bar + 1);
      if (next >= text.size()) break;
      const Prefix other = find_prefix(text.substr(next));
      at = next + std::max<std::size_t>(other.text, 1);
      // Each is searched for again only where it was passed: the other may be far away.
      if (torn < at) torn = next_torn(text, at);
      if (bar < at - 1) bar = text.find('\r', at - 1);
      if (other.empty() || other.same_writer(who)) continue;
      const std::string_view part = text.substr(from, next - from);
      if (!part.empty()) take(Piece{part, who, number_, begins && from == 0, false});
      who = other;
      from = next;
    }
    const std::string_view rest = text.substr(from);
    take(Piece{rest, who, number_, begins && from == 0, whole});
    if (!whole) writer_ = Writer(who);  // `who` may be a view into it
  }

  const std::size_t longest_;
  std::string carry_;         // the beginning of a line whose end has not come yet
  std::string line_;          // the carried text, while its pieces are given
  bool bars_ = true;          // the chunk in hand may hold carriage returns
  bool inside_ = false;       // a piece of a long line has been given
  std::uint64_t number_ = 0;  // number of the line in hand, from 1
  Writer writer_;             // writer of a long line's last piece
};

}  // namespace oddrank::logs
