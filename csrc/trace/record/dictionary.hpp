// The file's dictionary: what the numbers in events, marks and collectives stand for.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "trace/record/format.hpp"

namespace oddrank::trace {

// What the dictionary keeps of a code object; the views need to live for the call only.
struct CodeFacts {
  std::string_view name;  // qualified
  std::string_view file;
  std::string_view linetable;
  std::uint32_t first_line = 0;
  std::uint32_t level = 0;  // of the filter: what is recorded of it
  std::uint64_t source_hash = 0;
};

// Appends entries; ids count from 1, and 0 says that there was no room. Thread-safe: a mutex, on a
// path that is walked once per code object.
class DictionaryWriter {
 public:
  // `head` is the header's count of bytes; the region is all zeros.
  DictionaryWriter(char* region, std::size_t bytes, Word& head, Word& lost) noexcept
      : region_(region), bytes_(bytes), head_(head), lost_(lost) {}

  // Never the same id twice, even for a code object that has been seen before: its address may be
  // another's by now, and the caller knows when.
  std::uint32_t add_code(const CodeFacts& code) noexcept;
  // The id of the group or operation of that name.
  std::uint32_t group(std::string_view name) noexcept { return named(EntryKind::kGroup, name); }
  std::uint32_t operation(std::string_view name) noexcept {
    return named(EntryKind::kOperation, name);
  }

 private:
  std::uint32_t named(EntryKind kind, std::string_view name) noexcept;
  std::uint32_t name_locked(EntryKind kind, std::string_view name) noexcept;
  // Room for an entry with its head that leaves `reserve` bytes, or nullptr; the lock is held.
  char* begin(std::size_t payload, std::size_t reserve) noexcept;
  std::uint32_t finish(EntryKind kind, std::uint32_t id, std::size_t payload) noexcept;

  char* region_;
  std::size_t bytes_;
  Word& head_;
  Word& lost_;
  std::mutex mutex_;  // guards what follows
  std::size_t used_ = 0;
  std::uint32_t codes_ = 0;
  // By kind: what has an id already.
  std::array<std::unordered_map<std::string, std::uint32_t>, 5> names_;
};

}  // namespace oddrank::trace
