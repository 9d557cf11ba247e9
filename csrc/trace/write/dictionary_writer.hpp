// Writes the file's dictionary: names and code objects behind the ids in events and collectives.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "trace/format/collective.hpp"
#include "trace/format/format.hpp"
#include "trace/write/budget.hpp"

namespace oddrank::trace {

// The dictionary's facts of a code object. The views must live only during the call.
struct CodeFacts {
  std::string_view name;  // qualified
  std::string_view file;
  std::string_view linetable;
  std::uint32_t first_line = 0;
  std::uint32_t level = 0;  // the filter's Level
  std::uint64_t source_hash = 0;
};

// Appends entries and returns their ids, which count from 1; 0 if there is no room. Equal entries
// share an id. Thread-safe: takes a mutex, once per code object and twice per collective. Allocates
// only in its constructor: works in a process that is out of memory.
//
// A group is looked up at every collective, and may have thousands of ranks: it is known again by
// a hash of its name, back end and up to kMostHashed of its ranks.
class DictionaryWriter {
 public:
  // `region` must be all zeros; `head` is the header's byte count. Throws std::bad_alloc.
  DictionaryWriter(char* region, std::size_t bytes, Word& head, Word& lost_codes);

  // Counts a code object without room.
  std::uint32_t add_code(const CodeFacts& code) noexcept;
  // Notes in the code objects' entries the changes that last.
  void note_levels(std::span<const LevelChange> changes, std::uint64_t tsc) noexcept;
  // Returns the id of a code object named "?", shared by all that add_code() has no room for.
  std::uint32_t lost_code() noexcept;
  std::uint32_t group(const GroupFacts& group) noexcept;
  std::uint32_t operation(std::string_view name) noexcept;

 private:
  // The parts of an entry after its head.
  using Payload = std::array<std::string_view, 5>;
  static constexpr std::size_t kMostHashed = 64;
  static constexpr std::size_t kMostGroups = 1024;  // a power of two; later ones are slower
  static constexpr std::uint32_t kNoRoom = 0xFFFFFFFF;
  struct KnownGroup {
    std::uint64_t hash;
    std::uint32_t id;  // 0: free; kNoRoom: the group has no entry
  };

  static std::uint64_t hash_of(const GroupFacts& group) noexcept;
  // Writes the ranks to runs_; returns their number, 0 if they are unknown or have no room.
  std::uint32_t find_runs(const GroupFacts& group) noexcept;
  // Leaves the ranks out if only then it has room.
  std::uint32_t add_group(const GroupFacts& group) noexcept;

  // Returns the entry's id. Appends a new entry if that leaves `reserve` bytes free, else returns
  // 0. Call it with the lock held.
  std::uint32_t add(EntryKind kind, const Payload& payload, std::size_t reserve) noexcept;
  std::uint32_t add_code_entry(const CodeFacts& code, std::size_t reserve) noexcept;
  // Returns the slot of `index_` with this entry, or the free one where it belongs.
  std::uint32_t* find(EntryKind kind, const Payload& payload, std::size_t bytes,
                      std::uint32_t crc) noexcept;

  char* region_;
  std::size_t bytes_;
  Word& head_;
  Word& lost_codes_;
  std::mutex mutex_;  // guards all below
  std::size_t used_ = 0;
  std::array<std::uint32_t, 5> last_ids_{};  // by kind
  // Hash table of entries by CRC. A slot holds the entry's offset / 8 + 1; 0: free. Never full.
  std::vector<std::uint32_t> index_;
  std::vector<KnownGroup> groups_;  // hash table; half of it stays free
  std::size_t known_groups_ = 0;
  std::vector<RankRun> runs_;  // of the group being added
};

}  // namespace oddrank::trace
