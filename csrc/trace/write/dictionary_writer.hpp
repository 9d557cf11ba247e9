// Writes the file's dictionary: names and code objects behind the ids in events and collectives.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "os/mix.hpp"
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
  DictionaryWriter(char* region, std::size_t bytes, Word& head, Word& lost_codes)
      : region_(region),
        bytes_(bytes),
        head_(head),
        lost_codes_(lost_codes),
        index_(std::bit_ceil(bytes / kSmallestEntry + 2)),
        groups_(2 * kMostGroups),
        runs_(kMostRuns) {}

  // Counts a code object without room.
  std::uint32_t add_code(const CodeFacts& code) noexcept {
    const std::lock_guard lock(mutex_);
    const bool is_own = code.level == static_cast<std::uint32_t>(Level::kLines);
    const std::uint32_t id =
        add_code_entry(code, only_for_groups(bytes_) + (is_own ? 0 : only_for_own_code(bytes_)));
    if (id == 0) lost_codes_.fetch_add(1, std::memory_order_relaxed);
    return id;
  }
  // Notes in the code objects' entries the changes that last.
  void note_levels(std::span<const LevelChange> changes, std::uint64_t tsc) noexcept {
    if (std::ranges::none_of(changes, &LevelChange::lasting)) return;
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at < used_;) {
      auto* head = reinterpret_cast<EntryHead*>(region_ + at);
      at += head->size.load(std::memory_order_relaxed);
      if (head->kind != static_cast<std::uint32_t>(EntryKind::kCode)) continue;
      for (const LevelChange& change : changes) {
        if (change.code != head->id || !change.lasting) continue;
        head->now.store(LevelNow::of(change.level, tsc).bits, std::memory_order_relaxed);
      }
    }
  }
  // Returns the id of a code object named "?", shared by all that add_code() has no room for.
  std::uint32_t lost_code() noexcept {
    const std::lock_guard lock(mutex_);
    return add_code_entry({.name = "?", .file = {}, .linetable = {}}, 0);
  }
  std::uint32_t group(const GroupFacts& group) noexcept {
    const std::uint64_t hash = hash_of(group);
    const std::lock_guard lock(mutex_);
    const std::size_t mask = groups_.size() - 1;
    std::size_t at = hash & mask;
    for (; groups_[at].id != 0; at = (at + 1) & mask) {
      if (groups_[at].hash == hash) return groups_[at].id == kNoRoom ? 0 : groups_[at].id;
    }
    const std::uint32_t id = add_group(group);
    if (known_groups_ == kMostGroups) return id;
    ++known_groups_;
    groups_[at] = {hash, id == 0 ? kNoRoom : id};
    return id;
  }
  std::uint32_t operation(std::string_view name) noexcept {
    const std::lock_guard lock(mutex_);
    return add(EntryKind::kOperation, {name.substr(0, kLongestName)}, 0);
  }

 private:
  static constexpr std::size_t kLongestTable = 64 << 10;
  // Bytes of the dictionary that code entries leave free: groups and operations of a hang must
  // still fit. Ranks of groups leave kForNames free: a group without ranks is better than none.
  static constexpr std::size_t only_for_groups(std::size_t bytes) noexcept {
    return std::max<std::size_t>(4096, bytes / 16);
  }
  static constexpr std::size_t kForNames = 1024;
  // Bytes that code of frameworks leaves free, too: the program's own must still fit.
  static constexpr std::size_t only_for_own_code(std::size_t bytes) noexcept { return bytes / 4; }
  static constexpr std::size_t kSmallestEntry = sizeof(EntryHead) + 8;

  // The parts of an entry after its head.
  using Payload = std::array<std::string_view, 5>;
  static constexpr std::size_t kMostHashed = 64;
  static constexpr std::size_t kMostGroups = 1024;  // a power of two; later ones are slower
  static constexpr std::uint32_t kNoRoom = 0xFFFFFFFF;
  struct KnownGroup {
    std::uint64_t hash;
    std::uint32_t id;  // 0: free; kNoRoom: the group has no entry
  };

  static std::uint64_t hash_of(const GroupFacts& group) noexcept {
    // A sum, in which each word is mixed with its place: a processor does many at a time.
    std::uint64_t sum = group.is_whole_job ? 1 : 0;
    std::uint64_t place = 0;
    const auto add = [&](std::uint64_t word) { sum += mix_bits(word + (place += kMixStep)); };
    add(std::uint64_t{group.size} << 32 | group.own);
    for (std::string_view text : {group.name, group.backend}) {
      add(text.size());
      for (; !text.empty(); text.remove_prefix(std::min<std::size_t>(8, text.size()))) {
        std::uint64_t word = 0;
        text.copy(reinterpret_cast<char*>(&word), sizeof word);
        add(word);
      }
    }
    const std::size_t step = group.ranks.size() / kMostHashed + 1;
    for (std::size_t i = 0; i < group.ranks.size(); i += step) add(group.ranks[i]);
    return mix_bits(sum);
  }
  // Writes the ranks to runs_; returns their number, 0 if they are unknown or have no room.
  std::uint32_t find_runs(const GroupFacts& group) noexcept {
    if (group.size == 0 || group.size > kMostRanks) return 0;
    if (group.ranks.empty()) {
      runs_[0] = {0, 1, group.size};
      return group.is_whole_job ? 1 : 0;
    }
    if (group.ranks.size() != group.size) return 0;
    std::uint32_t runs = 0;
    for (const std::uint64_t wide : group.ranks) {
      if (wide >= kMostRanks) return 0;
      const auto rank = static_cast<std::uint32_t>(wide);
      if (runs > 0) {
        RankRun& run = runs_[runs - 1];
        const std::uint32_t last = run.first + run.step * (run.count - 1);
        if (run.count == 1 && rank > last) run.step = rank - last;
        if (rank > last && rank - last == run.step) {
          ++run.count;
          continue;
        }
      }
      if (runs == kMostRuns) return 0;
      runs_[runs++] = {rank, 1, 1};
    }
    return runs;
  }
  // Leaves the ranks out if only then it has room.
  std::uint32_t add_group(const GroupFacts& group) noexcept {
    const std::string_view name = group.name.substr(0, kLongestName);
    const std::string_view backend = group.backend.substr(0, kLongestName);
    const std::string_view text = group.text.substr(0, kLongestName);
    const std::uint32_t size = group.size <= kMostRanks ? group.size : 0;
    GroupEntry entry{size, group.own, find_runs(group), static_cast<std::uint32_t>(name.size()),
                     static_cast<std::uint32_t>(backend.size())};
    if (entry.runs > 0) {
      const std::string_view runs(reinterpret_cast<const char*>(runs_.data()),
                                  entry.runs * sizeof(RankRun));
      const std::uint32_t id =
          add(EntryKind::kGroup, {bytes_of(entry), runs, name, backend, text}, kForNames);
      if (id != 0) return id;
      entry.runs = 0;
    }
    return add(EntryKind::kGroup, {bytes_of(entry), {}, name, backend, text}, 0);
  }

  // Returns the entry's id. Appends a new entry if that leaves `reserve` bytes free, else returns
  // 0. Call it with the lock held.
  std::uint32_t add(EntryKind kind, const Payload& payload, std::size_t reserve) noexcept {
    std::size_t bytes = 0;
    std::uint32_t crc = 0;
    for (const std::string_view part : payload) {
      bytes += part.size();
      crc = crc32(part.data(), part.size(), crc);
    }
    std::uint32_t* const indexed = find(kind, payload, bytes, crc);
    if (*indexed != 0) {
      return reinterpret_cast<const EntryHead*>(region_ + (std::size_t{*indexed} - 1) * 8)->id;
    }
    const std::size_t size = (sizeof(EntryHead) + bytes + 7) / 8 * 8;
    if (bytes_ - used_ < size + reserve) return 0;
    char* at = region_ + used_ + sizeof(EntryHead);
    for (const std::string_view part : payload) at = std::copy(part.begin(), part.end(), at);
    auto* head = reinterpret_cast<EntryHead*>(region_ + used_);
    head->crc = crc;
    head->kind = static_cast<std::uint32_t>(kind);
    head->id = ++last_ids_[static_cast<std::size_t>(kind)];
    head->bytes = static_cast<std::uint32_t>(bytes);
    head->size.store(size, std::memory_order_release);
    *indexed = static_cast<std::uint32_t>(used_ / 8 + 1);
    used_ += size;
    head_.store(used_, std::memory_order_release);
    return head->id;
  }
  std::uint32_t add_code_entry(const CodeFacts& code, std::size_t reserve) noexcept {
    const std::uint32_t file =
        code.file.empty() ? 0 : add(EntryKind::kText, {code.file.substr(0, kLongestName)}, reserve);
    // Too long a line table is left out; the entry keeps its name.
    const std::string_view linetable =
        code.linetable.size() <= kLongestTable ? code.linetable : std::string_view();
    const CodeEntry entry{code.source_hash, code.first_line, code.level,
                          static_cast<std::uint32_t>(linetable.size()), file};
    return add(EntryKind::kCode, {bytes_of(entry), linetable, code.name.substr(0, kLongestName)},
               reserve);
  }
  // Returns the slot of `index_` with this entry, or the free one where it belongs.
  std::uint32_t* find(EntryKind kind, const Payload& payload, std::size_t bytes,
                      std::uint32_t crc) noexcept {
    const std::size_t mask = index_.size() - 1;
    for (std::size_t at = crc & mask;; at = (at + 1) & mask) {
      if (index_[at] == 0) return &index_[at];
      const char* entry = region_ + (std::size_t{index_[at]} - 1) * 8;
      const auto* head = reinterpret_cast<const EntryHead*>(entry);
      if (head->crc != crc || head->bytes != bytes ||
          head->kind != static_cast<std::uint32_t>(kind)) {
        continue;
      }
      const char* known = entry + sizeof(EntryHead);
      bool same = true;
      for (const std::string_view part : payload) {
        same = same && std::equal(part.begin(), part.end(), known);
        known += part.size();
      }
      if (same) return &index_[at];
    }
  }

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
