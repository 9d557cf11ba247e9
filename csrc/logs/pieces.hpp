// Cuts a log into pieces, each of one process: a line, or a part of one that several wrote.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "logs/docker.hpp"
#include "logs/prefixes.hpp"
#include "logs/writers.hpp"

namespace oddrank::logs {

// A part of a line by one process; its views live until the next call of the reader.
struct Piece {
  std::string_view text;  // as in the file; the last one of a line has the line's end
  std::string_view said;  // the same, unpacked where the line is JSON of Docker
  const Prefix& who;      // of `said`
  bool begins = false;    // it begins its line
  bool ends = false;      // it ends its line, or the file
};

// Reads a log chunk by chunk. take(const Piece&) gets all bytes, each once and in order.
//
// The writer changes within a line where another process's prefix comes: behind a carriage return
// (progress bars), or in the middle (a torn line). Lines longer than kLongest come as several
// pieces.
class PieceReader {
 public:
  static constexpr std::size_t kLongest = 256u << 10;

  template <class Take>
  void feed(std::string_view chunk, Take&& take) {
    while (!chunk.empty()) {
      const std::size_t newline = chunk.find('\n');
      const bool whole = newline != std::string_view::npos;
      const std::string_view part = chunk.substr(0, whole ? newline + 1 : newline);
      chunk.remove_prefix(part.size());
      if (carry_.empty() && whole) {
        line(part, true, take);
        continue;
      }
      carry_.append(part);
      if (!whole && carry_.size() < kLongest) continue;
      const std::string text = std::exchange(carry_, {});
      line(text, whole, take);
    }
  }

  // Gives the last line, if it has no end.
  template <class Take>
  void finish(Take&& take) {
    const std::string text = std::exchange(carry_, {});
    if (!text.empty()) line(text, true, take);
    inside_ = false;
  }

 private:
  template <class Take>
  void line(std::string_view text, bool whole, Take& take) {
    const bool begins = !std::exchange(inside_, !whole);
    std::string_view said = text;
    if (begins && whole && text.starts_with('{') && unpack_docker(text, unpacked_)) {
      said = unpacked_;
    }
    Prefix who = begins ? find_prefix(said) : writer_.prefix();
    if (said.data() != text.data() || !is_mixed(said, who.text)) {
      take(Piece{text, said, who, begins, whole});
      if (!whole && begins) writer_ = Writer(who);
      return;
    }
    mixed(text, who, begins, whole, take);
  }

  static bool is_mixed(std::string_view line, std::size_t from) {
    const std::size_t bar = line.find('\r');
    const bool inner = bar != std::string_view::npos &&
                       line.find_first_not_of("\r\n", bar) != std::string_view::npos;
    return inner || next_torn(line, from > 0 ? from : 1) != std::string_view::npos;
  }

  template <class Take>
  void mixed(std::string_view text, Prefix who, bool begins, bool whole, Take& take) {
    std::size_t from = 0;  // of the piece in hand
    for (std::size_t at = who.text > 0 ? who.text : 1; at < text.size();) {
      const std::size_t bar = text.find('\r', at - 1);
      const std::size_t next =
          std::min(next_torn(text, at), bar == std::string_view::npos ? bar : bar + 1);
      if (next >= text.size()) break;
      const Prefix other = find_prefix(text.substr(next));
      at = next + std::max<std::size_t>(other.text, 1);
      if (other.empty() || other.same_writer(who)) continue;
      const std::string_view part = text.substr(from, next - from);
      take(Piece{part, part, who, begins && from == 0, false});
      who = other;
      from = next;
    }
    const std::string_view rest = text.substr(from);
    take(Piece{rest, rest, who, begins && from == 0, whole});
    if (!whole) writer_ = Writer(who);  // `who` may be a view into it
  }

  std::string carry_;     // the beginning of a line whose end has not come yet
  bool inside_ = false;   // a piece of a long line has been given
  std::string unpacked_;  // the line, if it was packed into JSON
  Writer writer_;         // of the last piece of a long line
};

}  // namespace oddrank::logs
