// Walks the entries and checks every size before use.
#include "trace/read/dictionary.hpp"

#include <algorithm>

namespace oddrank::trace {
namespace {

// Bytes per read: enough for most dictionaries. A broken size reads at most kLargestEntry.
constexpr std::uint64_t kChunk = std::uint64_t{256} << 10;
constexpr std::uint64_t kLargestEntry = std::uint64_t{16} << 20;

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
  const std::uint64_t end =
      std::min<std::uint64_t>(file.counters().dictionary_bytes, file.dictionary().bytes());
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
  const std::uint64_t begin = file.dictionary().offset + from;
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
      return add_code(head.id, bytes);
    case EntryKind::kGroup:
      groups_.push_back({head.id, bytes.substr(0, kLongestName)});
      return nullptr;
    case EntryKind::kOperation:
      operations_.push_back({head.id, bytes.substr(0, kLongestName)});
      return nullptr;
  }
  return "is of an unknown kind";
}

const char* Dictionary::add_code(std::uint32_t id, std::string_view bytes) {
  const auto* entry = reinterpret_cast<const CodeEntry*>(bytes.data());
  if (bytes.size() < sizeof(CodeEntry)) return "is a code object that is cut";
  bytes.remove_prefix(sizeof(CodeEntry));
  if (entry->linetable > bytes.size()) return "has a line table longer than itself";
  Code code;
  code.id = id;
  code.first_line = entry->first_line;
  code.level = entry->level;
  code.file_id = entry->file;
  code.source_hash = entry->source_hash;
  code.linetable = {reinterpret_cast<const std::uint8_t*>(bytes.data()), entry->linetable};
  code.qualified_name = bytes.substr(entry->linetable, kLongestName);
  codes_.push_back(code);
  return nullptr;
}

const Code* Dictionary::code(std::uint32_t id) const noexcept { return find_id(codes_, id); }

std::string_view Dictionary::find(const Names& names, std::uint32_t id) noexcept {
  const Name* found = find_id(names, id);
  return found != nullptr ? found->text : std::string_view{};
}

}  // namespace oddrank::trace
