// Appends to the dictionary: the entry first, then its size, then the head.
#include "trace/record/dictionary.hpp"

#include <algorithm>
#include <array>

namespace oddrank::trace {
namespace {

constexpr std::size_t kLongestTable = 64 << 10;
// Code fills a dictionary; what hangs must still have its group's and operation's name.
constexpr std::size_t kOnlyForNames = 4096;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value & 1) != 0 ? value >> 1 ^ 0xEDB88320U : value >> 1;
    }
    table[i] = value;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

}  // namespace

std::uint32_t crc32(const void* data, std::size_t size) noexcept {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const auto* at = static_cast<const unsigned char*>(data); size > 0; ++at, --size) {
    crc = kCrcTable[(crc ^ *at) & 0xFF] ^ crc >> 8;
  }
  return ~crc;
}

char* DictionaryWriter::begin(std::size_t payload, std::size_t reserve) noexcept {
  if (bytes_ - used_ < sizeof(EntryHead) + payload + 7 + reserve) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  return region_ + used_ + sizeof(EntryHead);
}

std::uint32_t DictionaryWriter::finish(EntryKind kind, std::uint32_t id,
                                       std::size_t payload) noexcept {
  auto* head = reinterpret_cast<EntryHead*>(region_ + used_);
  head->crc = crc32(head + 1, payload);
  head->kind = static_cast<std::uint32_t>(kind);
  head->id = id;
  head->bytes = static_cast<std::uint32_t>(payload);
  const std::size_t size = (sizeof(EntryHead) + payload + 7) / 8 * 8;
  head->size.store(size, std::memory_order_release);
  used_ += size;
  head_.store(used_, std::memory_order_release);
  return id;
}

std::uint32_t DictionaryWriter::add_code(const CodeFacts& code) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint32_t file = name_locked(EntryKind::kText, code.file);
  // An entry without its lines is worth more than none at all.
  const std::size_t linetable = code.linetable.size() <= kLongestTable ? code.linetable.size() : 0;
  const std::string_view name = code.name.substr(0, kLongestName);
  const std::size_t payload = sizeof(CodeEntry) + linetable + name.size();
  char* at = begin(payload, kOnlyForNames);
  if (at == nullptr) return 0;
  const CodeEntry entry{code.source_hash, code.first_line, code.level,
                        static_cast<std::uint32_t>(linetable), file};
  std::memcpy(at, &entry, sizeof entry);
  // Not memcpy: what is empty may be null.
  std::copy_n(code.linetable.data(), linetable, at + sizeof entry);
  std::copy_n(name.data(), name.size(), at + sizeof entry + linetable);
  return finish(EntryKind::kCode, ++codes_, payload);
}

std::uint32_t DictionaryWriter::named(EntryKind kind, std::string_view name) noexcept {
  const std::lock_guard lock(mutex_);
  return name_locked(kind, name);
}

std::uint32_t DictionaryWriter::name_locked(EntryKind kind, std::string_view name) noexcept {
  auto& known = names_[static_cast<std::size_t>(kind)];
  const std::string key(name.substr(0, kLongestName));
  if (const auto found = known.find(key); found != known.end()) return found->second;
  char* at = begin(key.size(), kind == EntryKind::kText ? kOnlyForNames : 0);
  if (at == nullptr) return 0;
  std::copy(key.begin(), key.end(), at);
  const auto id = static_cast<std::uint32_t>(known.size() + 1);
  known.emplace(key, id);
  return finish(kind, id, key.size());
}

}  // namespace oddrank::trace
