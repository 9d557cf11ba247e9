// Finds any of a set of words in a text, at more than 1 GB/s.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace oddrank::logs {

// A word to look for, at least Needles::kLeast bytes long. follow > 0: with a matching line come
// the indented lines that the same process wrote after it, and the one after these (a traceback
// ends so), at most that many. follow < 0: just as many lines come, indented or not.
struct Needle {
  std::string text;
  int follow = 0;
  std::size_t reader = 0;  // number of the reader that looks for it, below 64
};

// Finds any of a set of words. Checks only every n-th group of four bytes of a text: n is so small
// that each word holds one group at any place. A table of bits rules out nearly all groups.
class Needles {
 public:
  static constexpr std::size_t kLeast = 4;
  static constexpr std::size_t kMost = 1024;
  static constexpr std::size_t kNone = std::string_view::npos;

  // Throws Error if there are more than kMost words, or one is too short.
  explicit Needles(std::vector<Needle> needles);

  // Returns the first of the words that a text contains, or kNone. Words that end within the first
  // `seen` bytes don't count.
  std::size_t in(std::string_view text, std::size_t seen = 0) const;
  bool any_in(std::string_view text) const { return readers_in(text, 0) != 0; }
  // Returns the readers whose words a text contains, a bit each. Stops when it has all `wanted`.
  std::uint64_t readers_in(std::string_view text, std::uint64_t wanted) const;

  // A word's place in a text. needle: the first of those that stand there.
  struct Hit {
    std::size_t at, needle;
    bool operator<(const Hit& other) const {
      return at != other.at ? at < other.at : needle < other.needle;
    }
  };
  // Returns the first word that begins at `from` or behind it; {npos, 0} if there is none.
  Hit next(std::string_view text, std::size_t from) const;

  const Needle& operator[](std::size_t index) const { return needles_[index]; }
  std::size_t size() const { return needles_.size(); }
  std::size_t longest() const { return longest_; }

 private:
  struct Place {
    std::uint16_t group;  // hash of four bytes
    std::uint16_t needle;
    std::uint8_t offset;  // where in the needle they stand
    std::uint32_t head;   // the needle's first four bytes
  };

  static std::uint32_t four_bytes(const char* at) {
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, at, sizeof bytes);
    return bytes;
  }
  static std::uint16_t hash(std::uint32_t bytes) {
    return static_cast<std::uint16_t>((bytes * 0x9E3779B1U) >> 16);
  }
  // Returns whether a place's needle stands around these bytes of a text.
  bool fits(std::string_view text, std::size_t at, const Place& place) const;
  template <class Take, class Done>
  void each(std::string_view text, std::size_t from, Take take, Done done) const;
  bool is_group(const char* at) const {
    const std::uint16_t group = hash(four_bytes(at));
    return (bits_[group / 64] >> (group % 64) & 1) != 0;
  }
  // Returns the first place from `at` on, in steps of the stride, where a group of a word may
  // stand.
  std::size_t candidate(std::string_view text, std::size_t at) const;

  std::vector<Needle> needles_;
  std::size_t stride_ = 1;
  std::size_t longest_ = 0;
  std::vector<std::uint64_t> bits_;   // by hash: whether any needle holds such a group
  std::vector<Place> places_;         // sorted by group
  std::vector<std::uint16_t> first_;  // by a group's upper bits: its first place
};

}  // namespace oddrank::logs
