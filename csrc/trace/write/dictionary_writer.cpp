// Appends to the dictionary: the entry first, then its size, then the head.
#include "trace/write/dictionary_writer.hpp"

#include <algorithm>
#include <bit>

#include "trace/format/format.hpp"

namespace oddrank::trace {
namespace {

constexpr std::size_t kLongestTable = 64 << 10;
// Bytes that code entries leave free: group and operation names of a hang must still fit.
constexpr std::size_t kOnlyForNames = 4096;
constexpr std::size_t kSmallestEntry = sizeof(EntryHead) + 8;

}  // namespace

DictionaryWriter::DictionaryWriter(char* region, std::size_t bytes, Word& head, Word& lost_codes)
    : region_(region),
      bytes_(bytes),
      head_(head),
      lost_codes_(lost_codes),
      index_(std::bit_ceil(bytes / kSmallestEntry + 2)) {}

std::uint32_t* DictionaryWriter::find(EntryKind kind, const Payload& payload, std::size_t bytes,
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

std::uint32_t DictionaryWriter::add(EntryKind kind, const Payload& payload,
                                    std::size_t reserve) noexcept {
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

std::uint32_t DictionaryWriter::add_code_entry(const CodeFacts& code,
                                               std::size_t reserve) noexcept {
  const std::uint32_t file =
      code.file.empty() ? 0 : add(EntryKind::kText, {code.file.substr(0, kLongestName)}, reserve);
  // Too long a line table is left out; the entry keeps its name.
  const std::string_view linetable =
      code.linetable.size() <= kLongestTable ? code.linetable : std::string_view();
  const CodeEntry entry{code.source_hash, code.first_line, code.level,
                        static_cast<std::uint32_t>(linetable.size()), file};
  return add(EntryKind::kCode,
             {std::string_view(reinterpret_cast<const char*>(&entry), sizeof entry), linetable,
              code.name.substr(0, kLongestName)},
             reserve);
}

std::uint32_t DictionaryWriter::add_code(const CodeFacts& code) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t id = add_code_entry(code, kOnlyForNames);
  if (id == 0) lost_codes_.fetch_add(1, std::memory_order_relaxed);
  return id;
}

std::uint32_t DictionaryWriter::lost_code() noexcept {
  const std::lock_guard lock(mutex_);
  return add_code_entry({.name = "?", .file = {}, .linetable = {}}, 0);
}

std::uint32_t DictionaryWriter::group(std::string_view name) noexcept {
  const std::lock_guard lock(mutex_);
  return add(EntryKind::kGroup, {name.substr(0, kLongestName)}, 0);
}

std::uint32_t DictionaryWriter::operation(std::string_view name) noexcept {
  const std::lock_guard lock(mutex_);
  return add(EntryKind::kOperation, {name.substr(0, kLongestName)}, 0);
}

}  // namespace oddrank::trace
