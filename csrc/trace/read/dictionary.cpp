// Walks the entries and checks every size before use. Decodes co_linetable in its two
// formats: 3.10, and 3.11 and later.
#include "trace/read/dictionary.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace oddrank::trace {
namespace {

// Bytes per read: enough for most dictionaries. A broken size reads at most kLargestEntry.
constexpr std::uint64_t kChunk = std::uint64_t{256} << 10;
constexpr std::uint64_t kLargestEntry = std::uint64_t{16} << 20;

constexpr std::uint32_t kNoLine = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kLastLine = std::numeric_limits<std::int32_t>::max();  // a C int in CPython
constexpr std::uint32_t kUnit = 2;  // bytes of an instruction; 3.11+ counts in these
// Kinds of a line table's entries in 3.11+. Smaller kinds mean the same line and encode part of the
// column; 14 has columns of any length.
constexpr unsigned kOneLine0 = 10, kOneLine2 = 12, kNoColumns = 13, kNoLocation = 15;

// Ids are nearly sorted already. Stable: the first entry of an id counts.
template <class Entries>
void sort_by_id(Entries& entries) {
  using Entry = typename Entries::value_type;
  if (!std::ranges::is_sorted(entries, {}, &Entry::id)) {
    std::ranges::stable_sort(entries, {}, &Entry::id);
  }
}

template <class Entries>
auto find_id(const Entries& entries, std::uint32_t id) noexcept -> decltype(entries.data()) {
  using Entry = typename Entries::value_type;
  const auto found = std::ranges::lower_bound(entries, id, {}, &Entry::id);
  return found != entries.end() && found->id == id ? &*found : nullptr;
}

// Returns what is wrong with the sizes of an entry; null if nothing is.
const char* wrong_size(const EntryHead& head, std::uint64_t room) noexcept {
  const std::uint64_t size = value_of(head.size);
  if (size == 0) return "is not written yet, or its writer died";
  if (size > room) return "is longer than what is left";
  if (size > kLargestEntry) return "is longer than an entry may be";
  const std::uint64_t used = sizeof(EntryHead) + head.bytes;
  if (size % sizeof(Word) != 0 || used > size || size - used >= sizeof(Word)) {
    return "has sizes that contradict each other";
  }
  return nullptr;
}

}  // namespace

Dictionary::Dictionary(const RecordFile& file) {
  const std::uint64_t end = std::min<std::uint64_t>(value_of(file.header()->dictionary_head),
                                                    file.layout().dictionary.bytes());
  std::uint64_t at = 0;
  bool looked_again = false;
  while (at < end) {
    const char* trouble = nullptr;
    const std::uint64_t read = read_chunk(file, at, end, trouble);
    at += read;
    if (trouble == nullptr) {
      looked_again = false;
    } else if (read == 0 && looked_again) {
      broken_ = "entry " + std::to_string(entries_ + 1) + " of the dictionary, at byte " +
                std::to_string(at) + ", " + trouble;
      break;
    } else {
      // Try once more: the entry may have been half written.
      looked_again = true;
    }
  }
  sort_by_id(texts_);
  sort_by_id(groups_);
  sort_by_id(operations_);
  sort_by_id(codes_);
  for (Code& code : codes_) code.file = text(code.file_id);
}

// Copies a chunk from the start of an entry and adds its whole entries. Returns their size in
// bytes. Sets `trouble` if an entry is broken, not if only the chunk ended.
std::uint64_t Dictionary::read_chunk(const RecordFile& file, std::uint64_t from, std::uint64_t end,
                                     const char*& trouble) {
  const std::uint64_t left = end - from;
  if (left < sizeof(EntryHead)) {
    trouble = "is cut";
    return 0;
  }
  const std::uint64_t begin = file.layout().dictionary.offset + from;
  std::uint64_t size = std::min(left, kChunk);
  auto words = file.words(begin, size);
  const auto* head = reinterpret_cast<const EntryHead*>(words.data());
  trouble = wrong_size(*head, left);
  if (trouble != nullptr) return 0;
  if (const std::uint64_t needed = value_of(head->size); needed > size) {
    words = file.words(begin, size = needed);
  }
  chunks_.push_back(std::move(words));
  const auto* bytes = reinterpret_cast<const char*>(chunks_.back().data());
  std::uint64_t at = 0;
  while (size - at >= sizeof(EntryHead)) {
    head = reinterpret_cast<const EntryHead*>(bytes + at);
    trouble = wrong_size(*head, left - at);
    if (trouble != nullptr) break;
    if (value_of(head->size) > size - at) return at;  // the next chunk begins with it
    const std::string_view rest(bytes + at + sizeof(EntryHead), head->bytes);
    if (crc32(rest.data(), rest.size()) != head->crc) trouble = "has a wrong checksum";
    if (trouble == nullptr) trouble = add(*head, rest);
    if (trouble != nullptr) break;
    at += value_of(head->size);
    ++entries_;
  }
  return at;
}

const char* Dictionary::add(const EntryHead& head, std::string_view bytes) {
  if (head.id == 0) return "has no id";
  switch (static_cast<EntryKind>(head.kind)) {
    case EntryKind::kText:
      texts_.push_back({head.id, bytes.substr(0, kLongestName)});
      return nullptr;
    case EntryKind::kCode:
      return add_code(head.id, {value_of(head.now)}, bytes);
    case EntryKind::kGroup:
      return add_group(head.id, bytes);
    case EntryKind::kOperation:
      operations_.push_back({head.id, bytes.substr(0, kLongestName)});
      return nullptr;
  }
  return "is of an unknown kind";
}

const char* Dictionary::add_code(std::uint32_t id, LevelNow now, std::string_view bytes) {
  const auto* entry = reinterpret_cast<const CodeEntry*>(bytes.data());
  if (bytes.size() < sizeof(CodeEntry)) return "is a code object that is cut";
  bytes.remove_prefix(sizeof(CodeEntry));
  if (entry->linetable > bytes.size()) return "has a line table longer than itself";
  Code code;
  code.id = id;
  code.first_line = entry->first_line;
  code.level = entry->level;
  code.now = now;
  code.file_id = entry->file;
  code.linetable = {reinterpret_cast<const std::uint8_t*>(bytes.data()), entry->linetable};
  code.qualified_name = bytes.substr(entry->linetable, kLongestName);
  codes_.push_back(code);
  return nullptr;
}

const char* Dictionary::add_group(std::uint32_t id, std::string_view bytes) {
  const auto* entry = reinterpret_cast<const GroupEntry*>(bytes.data());
  if (bytes.size() < sizeof(GroupEntry)) return "is a process group that is cut";
  bytes.remove_prefix(sizeof(GroupEntry));
  if (entry->runs > kMostRuns || entry->runs * sizeof(RankRun) > bytes.size()) {
    return "has more ranks than it has room for";
  }
  ProcessGroup group{id, entry->size, entry->own, {}, {}, {}, {}};
  group.runs = {reinterpret_cast<const RankRun*>(bytes.data()), entry->runs};
  std::uint64_t ranks = 0;
  for (const RankRun& run : group.runs) {
    const std::uint64_t last = run.first + std::uint64_t{run.step} * (run.count - 1);
    const bool repeats = run.step == 0 && run.count > 1;
    if (run.count == 0 || run.count > kMostRanks || last >= kMostRanks || repeats) {
      return "has ranks that no job has";
    }
    ranks += run.count;
  }
  if (entry->size > kMostRanks) return "has more ranks than a job has";
  if (entry->runs > 0 && ranks != entry->size) return "has another number of ranks than it says";
  bytes.remove_prefix(group.runs.size_bytes());
  if (entry->name > bytes.size() || entry->backend > bytes.size() - entry->name) {
    return "has names longer than itself";
  }
  group.name = bytes.substr(0, entry->name).substr(0, kLongestName);
  group.backend = bytes.substr(entry->name, entry->backend).substr(0, kLongestName);
  group.text = bytes.substr(std::size_t{entry->name} + entry->backend, kLongestName);
  groups_.push_back(group);
  return nullptr;
}

std::optional<std::uint32_t> ProcessGroup::global(std::uint32_t rank) const noexcept {
  if (rank >= size) return std::nullopt;
  for (const RankRun& run : runs) {
    if (rank < run.count) return run.first + run.step * rank;
    rank -= run.count;
  }
  return std::nullopt;
}

const ProcessGroup* Dictionary::group(std::uint32_t id) const noexcept {
  return find_id(groups_, id);
}

const Code* Dictionary::code(std::uint32_t id) const noexcept { return find_id(codes_, id); }

std::string_view Dictionary::find(const Names& names, std::uint32_t id) noexcept {
  const Name* found = find_id(names, id);
  return found != nullptr ? found->text : std::string_view{};
}

// Decodes a table from start to end; each step consumes at least one byte.
class LineTableDecoder {
 public:
  LineTableDecoder(std::span<const std::uint8_t> bytes, std::uint32_t first_line)
      : rest_(bytes), line_(first_line) {}

  // Pairs of bytes: a range's length (unsigned) and its line minus the last range's line (signed;
  // -128: no line). Large numbers take several pairs.
  bool decode_310() {
    constexpr std::int8_t kNone = -128;
    while (!rest_.empty()) {
      if (rest_.size() < 2) return false;
      const std::uint32_t length = rest_[0];
      const auto delta = static_cast<std::int8_t>(rest_[1]);
      rest_ = rest_.subspan(2);
      if (delta != kNone) line_ += delta;
      if (!add(length, delta != kNone)) return false;
    }
    return true;
  }

  // Entries: a byte 1kkkklll (kind, length - 1), then bytes below 0x80. Skips columns.
  bool decode_311() {
    while (!rest_.empty()) {
      const std::uint8_t head = rest_[0];
      rest_ = rest_.subspan(1);
      const unsigned kind = head >> 3 & 0xf;
      const bool whole = (head & 0x80) != 0 && move_line(kind);
      if (!whole || !add(((head & 7U) + 1) * kUnit, kind != kNoLocation)) return false;
    }
    return true;
  }

  // Returns the ranges of a whole table.
  std::vector<LineTable::Range> take() {
    open_range(kNoLine);
    return std::move(ranges_);
  }

 private:
  // Reads the rest of an entry of this kind.
  bool move_line(unsigned kind) {
    std::uint32_t unused = 0;
    if (kind == kNoLocation) return true;
    if (kind < kOneLine0) return skip(1);
    if (kind <= kOneLine2) {
      line_ += kind - kOneLine0;
      return skip(2);
    }
    std::uint32_t delta = 0;
    if (!varint(delta)) return false;
    line_ += (delta & 1) != 0 ? -std::int64_t{delta >> 1} : std::int64_t{delta >> 1};
    return kind == kNoColumns || (varint(unused) && varint(unused) && varint(unused));
  }

  // Skips columns.
  bool skip(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (i == rest_.size() || (rest_[i] & 0x80) != 0) return false;
    }
    rest_ = rest_.subspan(bytes);
    return true;
  }

  // Six bits a byte, lowest first; 0x40: more follow.
  bool varint(std::uint32_t& value) {
    std::uint64_t wide = 0;
    for (unsigned shift = 0; shift <= 30; shift += 6) {
      if (rest_.empty() || (rest_[0] & 0x80) != 0) return false;
      const std::uint8_t byte = rest_[0];
      rest_ = rest_.subspan(1);
      wide |= std::uint64_t{byte & 0x3fU} << shift;
      if ((byte & 0x40) == 0) {
        value = static_cast<std::uint32_t>(wide);
        return wide == value;
      }
    }
    return false;
  }

  // Assigns the next `length` bytes of code to line_, or to no line.
  bool add(std::uint32_t length, bool has_line) {
    // Check at each step, so that the sum of differences can't overflow 64 bits.
    if (line_ < 0 || line_ > kLastLine) return false;
    if (length == 0) return true;
    if (length > std::numeric_limits<std::uint32_t>::max() - end_) return false;
    const std::uint32_t line = has_line ? static_cast<std::uint32_t>(line_) : kNoLine;
    if (ranges_.empty() || ranges_.back().line != line) open_range(line);
    end_ += length;
    return true;
  }

  void open_range(std::uint32_t line) { ranges_.push_back({end_, line}); }

  std::span<const std::uint8_t> rest_;
  std::int64_t line_;
  std::uint32_t end_ = 0;  // end of the code covered so far
  std::vector<LineTable::Range> ranges_;
};

LineTable::LineTable(std::uint32_t python_version_hex, std::span<const std::uint8_t> linetable,
                     std::uint32_t first_line) {
  const std::uint32_t version = python_version_hex >> 16;
  LineTableDecoder decoder(linetable, first_line);
  if (version < kOldestPython || version > kNewestPython) return;
  const bool whole = version == 0x030a ? decoder.decode_310() : decoder.decode_311();
  if (whole) ranges_ = decoder.take();
}

std::string LineTable::without_columns(std::uint32_t first_line) const {
  constexpr std::uint32_t kMostUnits = 8;  // of an entry
  std::string made;
  std::int64_t line = first_line;
  for (std::size_t i = 0; i + 1 < ranges_.size(); ++i) {
    const bool has_line = ranges_[i].line != kNoLine;
    const unsigned kind = has_line ? kNoColumns : kNoLocation;
    std::uint32_t left = (ranges_[i + 1].start - ranges_[i].start) / kUnit;
    while (left > 0) {
      const std::uint32_t units = std::min(left, kMostUnits);
      left -= units;
      made += static_cast<char>(0x80 | kind << 3 | (units - 1));
      if (!has_line) continue;
      const std::int64_t delta = ranges_[i].line - std::exchange(line, ranges_[i].line);
      auto bits = static_cast<std::uint64_t>(delta < 0 ? -delta << 1 | 1 : delta << 1);
      for (; bits >= 0x40; bits >>= 6) made += static_cast<char>((bits & 0x3f) | 0x40);
      made += static_cast<char>(bits);
    }
  }
  return made;
}

std::optional<std::uint32_t> LineTable::line_at(std::uint32_t offset) const noexcept {
  const auto after = std::ranges::upper_bound(ranges_, offset, {}, &Range::start);
  if (after == ranges_.begin()) return std::nullopt;
  const std::uint32_t line = std::prev(after)->line;
  return line == kNoLine ? std::nullopt : std::optional(line);
}

}  // namespace oddrank::trace
