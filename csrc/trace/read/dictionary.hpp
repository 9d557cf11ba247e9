// The dictionary of a record: what the ids in stacks, events and collectives mean.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/read/file.hpp"

namespace oddrank::trace {

// A code object. The views point into the Dictionary that gave it.
struct Code {
  std::uint32_t id = 0;
  std::uint32_t first_line = 0;
  std::uint32_t level = 0;  // of the filter
  std::uint32_t file_id = 0;
  std::uint64_t source_hash = 0;  // 0: not known
  std::string_view qualified_name;
  std::string_view file;  // empty: not known
  std::span<const std::uint8_t> linetable;
};

// All entries up to the first broken one, copied once; the file may go afterwards. Texts are bytes
// of the writer's, not checked to be UTF-8.
class Dictionary {
 public:
  explicit Dictionary(const RecordFile& file);
  Dictionary(Dictionary&&) = default;
  Dictionary& operator=(Dictionary&&) = default;
  Dictionary(const Dictionary&) = delete;
  Dictionary& operator=(const Dictionary&) = delete;
  ~Dictionary() = default;

  // Null where there is no such id.
  const Code* code(std::uint32_t id) const noexcept;
  // Empty where there is no such id.
  std::string_view text(std::uint32_t id) const noexcept { return find(texts_, id); }
  std::string_view group(std::uint32_t id) const noexcept { return find(groups_, id); }
  std::string_view operation(std::uint32_t id) const noexcept { return find(operations_, id); }

  const std::vector<Code>& codes() const noexcept { return codes_; }  // by id
  // Whole entries, and what is wrong with the one after them: empty where all were read.
  std::size_t entries() const noexcept { return entries_; }
  const std::string& broken() const noexcept { return broken_; }

 private:
  struct Name {
    std::uint32_t id;
    std::string_view text;
  };
  using Names = std::vector<Name>;
  static std::string_view find(const Names& names, std::uint32_t id) noexcept;
  const char* add(const EntryHead& head, std::string_view bytes);
  const char* add_code(std::uint32_t id, std::string_view bytes);
  std::uint64_t read_chunk(const RecordFile& file, std::uint64_t from, std::uint64_t end,
                           const char*& trouble);

  // Words, so that entries are aligned; each chunk begins with an entry and keeps its place.
  std::vector<std::vector<std::uint64_t>> chunks_;
  std::vector<Code> codes_;
  Names texts_, groups_, operations_;
  std::size_t entries_ = 0;
  std::string broken_;
};

}  // namespace oddrank::trace
