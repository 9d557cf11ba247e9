// Walks the entries and checks every size before use.
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
constexpr std::uint32_t kUnit = 2;  // bytes of an instruction

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

// Returns the error in the sizes of an entry; null if there is none.
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

namespace {

void append_number(std::string& bytes, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  bytes += static_cast<char>(number);
}

// Returns a number that is too large for any table if there is none.
std::uint64_t take_number(std::span<const std::uint8_t>& rest) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; shift < 35 && !rest.empty(); shift += 7) {
    const std::uint8_t byte = rest.front();
    rest = rest.subspan(1);
    number |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return number;
  }
  return std::uint64_t{1} << 35;
}

}  // namespace

void LineTableWriter::add(std::uint32_t bytes, std::optional<std::uint32_t> line) {
  if (line != line_) take();
  bytes_ += bytes;
  line_ = line;
}

const std::string& LineTableWriter::take() {
  const std::uint32_t units = std::exchange(bytes_, 0) / kUnit;
  if (units == 0) return table_;
  append_number(table_, units);
  const std::int64_t move = line_ ? std::int64_t{*line_} - std::exchange(last_line_, *line_) : 0;
  const auto change = static_cast<std::uint64_t>(move < 0 ? -2 * move - 1 : 2 * move);
  append_number(table_, line_ ? 1 + change : 0);
  return table_;
}

LineTable::LineTable(std::span<const std::uint8_t> table, std::uint32_t first_line) {
  std::uint64_t end = 0;
  std::int64_t line = first_line;
  while (!table.empty()) {
    const std::uint64_t units = take_number(table), move = take_number(table);
    if (move > 0) line += (move & 1) != 0 ? std::int64_t(move / 2) : -std::int64_t(move / 2);
    ranges_.push_back(
        {static_cast<std::uint32_t>(end), move == 0 ? kNoLine : static_cast<std::uint32_t>(line)});
    end += units * kUnit;
    if (line < 0 || line > kLastLine || end > std::numeric_limits<std::uint32_t>::max()) {
      ranges_.clear();
      return;
    }
  }
  ranges_.push_back({static_cast<std::uint32_t>(end), kNoLine});
}

std::optional<std::uint32_t> LineTable::line_at(std::uint32_t offset) const noexcept {
  const auto after = std::ranges::upper_bound(ranges_, offset, {}, &Range::start);
  if (after == ranges_.begin()) return std::nullopt;
  const std::uint32_t line = std::prev(after)->line;
  return line == kNoLine ? std::nullopt : std::optional(line);
}

}  // namespace oddrank::trace
