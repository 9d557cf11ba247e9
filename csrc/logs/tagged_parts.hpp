// Joins the parts of lines that mpirun --tag-output tags: it puts a tag in front of what each call
// of write() wrote, so that a line may come in parts, with other ranks' parts between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "logs/prefixes.hpp"
#include "logs/writers.hpp"

namespace oddrank::logs {

// A line that is whole again. Its views live until the next call of add() or decide().
struct Joined {
  std::string_view text;   // its bytes in the log, with all tags
  std::string_view said;   // the same with its first tag alone, and with the line's prefixes
  std::uint64_t line = 0;  // where it begins

  bool in_one_part() const { return said.data() == text.data(); }
};

// Holds parts until their lines end. Each rank's stdout and stderr have lines of their own.
class TaggedParts {
 public:
  // The bytes that may wait, in the texts and in what was said. If more do, all become lines
  // without an end.
  static constexpr std::size_t kMostHeld = 16u << 20;

  explicit TaggedParts(std::size_t most_held) : most_held_(most_held) {}

  // Returns whether a line must be added: it holds a part of a line, or may end one. who: its
  // prefix. ends: its end has come.
  bool needs(std::string_view line, const Prefix& who, bool ends);

  // Takes a line, with or without its newline, and returns the lines that it completes. repeated:
  // bytes at its front that were added before, see Cut. number: the line's, from 1.
  const std::vector<Joined>& add(std::string_view line, std::size_t repeated, std::uint64_t number,
                                 bool ends);

  // Returns what a line decides that can't be added: whether a row of dashes before it is mpirun's.
  const std::vector<Joined>& decide(std::string_view line);

  // Returns what waits as lines without an end, in the order in which they began. What the last
  // call of add() returned still lives.
  const std::vector<Joined>& finish();

  // Where a line is cut that has no end yet: in front of its last tag.
  struct Cut {
    std::size_t taken = 0;  // bytes that can be added; 0: one write wrote all of the line
    std::string_view head;  // the line's prefixes: they stand in front of the rest, too
  };
  static Cut cut(std::string_view line, std::size_t repeated);

 private:
  struct Held {
    std::string text;
    std::string said;
    std::uint64_t line = 0;
    std::uint64_t order = 0;

    std::size_t size() const { return text.size() + said.size(); }
  };
  using Stream = std::unordered_map<Writer, Held, HashWriter, SameWriter>;
  // The bytes of one write: how many of them are the tag, and the text before all tags of the line
  // if it is not part of the bytes.
  struct Part {
    std::string_view text;
    std::size_t tag;
    std::string_view head;
  };
  // A row of dashes at the end of a line that waits. The next line tells who wrote it.
  struct Row {
    std::size_t size = 0;  // with the line's end; 0: there is none
    std::size_t stream = 0;
    Writer who;
    std::uint64_t line = 0;
  };

  void hold(Stream& stream, const Prefix& who, const Part& part, std::uint64_t number);
  void complete(Stream& stream, const Prefix& who, const Part& part, std::uint64_t number);
  Held release(Stream& stream, Stream::iterator held);
  void give(Held held);
  void give_all();

  const std::size_t most_held_;
  std::array<Stream, 3> streams_;  // stdout, stderr, stddiag: what waits
  std::size_t held_ = 0;           // bytes that wait
  std::size_t waiting_ = 0;        // lines that wait
  std::uint64_t order_ = 0;
  Row row_;
  bool tagged_ = false;     // a line of the log began with a tag
  std::deque<Held> given_;  // what `ready_` views; a deque never moves what it holds
  std::vector<Joined> ready_;
};

}  // namespace oddrank::logs
