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

// A line that is whole again. Its views live until the next call of TaggedParts.
struct Joined {
  std::string_view text;   // its bytes in the log, with all tags
  std::string_view said;   // the same with its first tag alone
  std::uint64_t line = 0;  // where it begins

  bool in_one_part() const { return said.data() == text.data(); }
};

// Holds parts until their lines end. Each rank's stdout and stderr have lines of their own.
class TaggedParts {
 public:
  // The bytes that may wait. If more do, all become lines without an end.
  static constexpr std::size_t kMostHeld = 16u << 20;

  // Returns whether a line must be added: it holds a part of a line, or may end one. who: its
  // prefix. ends: its end has come.
  bool needs(std::string_view line, const Prefix& who, bool ends);

  // Takes a line, with or without its newline, and returns the lines that it completes. number: the
  // line's, from 1.
  const std::vector<Joined>& add(std::string_view line, std::uint64_t number, bool ends);

  // Returns what waits as lines without an end, in the order in which they began.
  const std::vector<Joined>& finish();

  // Returns how many bytes of a line that has no end yet can be added: those before its last tag.
  static std::size_t addable(std::string_view line);

 private:
  struct Held {
    std::string text;
    std::string said;
    std::uint64_t line = 0;
    std::uint64_t order = 0;
  };
  using Stream = std::unordered_map<Writer, Held, HashWriter, SameWriter>;
  // What one write wrote: its bytes, how many of them are the tag, and what stands before all tags
  // of the line if it is not part of the bytes.
  struct Part {
    std::string_view text;
    std::size_t tag;
    std::string_view head;
  };

  void hold(Stream& stream, const Prefix& who, const Part& part, std::uint64_t number);
  void complete(Stream& stream, const Prefix& who, const Part& part, std::uint64_t number);
  void give(Held held);
  void give_all();

  std::array<Stream, 3> streams_;  // stdout, stderr, stddiag: what waits
  std::size_t held_ = 0;           // bytes that wait
  std::size_t waiting_ = 0;        // lines that wait
  std::uint64_t order_ = 0;
  bool tagged_ = false;     // a line of the log began with a tag
  std::deque<Held> given_;  // what `ready_` views; a deque never moves what it holds
  std::vector<Joined> ready_;
};

}  // namespace oddrank::logs
