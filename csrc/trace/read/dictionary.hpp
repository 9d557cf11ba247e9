// Reads a record's dictionary: the names and code objects behind its ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/read/file.hpp"

namespace oddrank::trace {

// A code object. Its views point into its Dictionary.
struct Code {
  std::uint32_t id = 0;
  std::uint32_t first_line = 0;
  std::uint32_t level = 0;  // the filter's level
  std::uint32_t file_id = 0;
  std::uint64_t source_hash = 0;  // 0: unknown
  std::string_view qualified_name;
  std::string_view file;  // empty: unknown
  std::span<const std::uint8_t> linetable;
};

// Copies all entries up to the first broken one; does not use the file afterwards. Texts are the
// writer's bytes: possibly invalid UTF-8.
class Dictionary {
 public:
  explicit Dictionary(const RecordFile& file);
  Dictionary(Dictionary&&) = default;
  Dictionary& operator=(Dictionary&&) = default;
  Dictionary(const Dictionary&) = delete;
  Dictionary& operator=(const Dictionary&) = delete;
  ~Dictionary() = default;

  // Returns null if there is no such id.
  const Code* code(std::uint32_t id) const noexcept;
  // Return empty if there is no such id.
  std::string_view text(std::uint32_t id) const noexcept { return find(texts_, id); }
  std::string_view group(std::uint32_t id) const noexcept { return find(groups_, id); }
  std::string_view operation(std::uint32_t id) const noexcept { return find(operations_, id); }

  const std::vector<Code>& codes() const noexcept { return codes_; }  // by id
  // Number of entries read, and the fault of the next one; empty if there is none.
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

  // Words, for alignment. Each chunk begins with an entry; its data never moves.
  std::vector<std::vector<std::uint64_t>> chunks_;
  std::vector<Code> codes_;
  Names texts_, groups_, operations_;
  std::size_t entries_ = 0;
  std::string broken_;
};

}  // namespace oddrank::trace
