// Reads a record's dictionary: the names and code objects behind its ids, and the lines of a code
// object.
#pragma once

#include <cstdint>
#include <optional>
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
  LevelNow now;             // if it has been recorded at another one
  std::uint32_t file_id = 0;
  std::string_view qualified_name;
  std::string_view file;  // empty: unknown
  std::span<const std::uint8_t> linetable;

  // The level at which it is recorded now.
  std::uint32_t level_now() const noexcept {
    return now.is_changed() ? static_cast<std::uint32_t>(now.level()) : level;
  }
  // Whether it is recorded less closely than the filter says.
  bool is_lowered() const noexcept { return level_now() < level; }
};

// A process group. Its views point into its Dictionary.
struct ProcessGroup {
  std::uint32_t id = 0;
  std::uint32_t size = 0;       // number of ranks; 0: unknown
  std::uint32_t own = kNoRank;  // this process's rank in the group; kNoRank: unknown
  std::string_view name;
  std::string_view backend;       // nccl, gloo, ...; empty: unknown
  std::string_view text;          // its description
  std::span<const RankRun> runs;  // global ranks in the order of the group; empty: unknown

  // Returns the global rank of a rank in the group; empty if it is unknown.
  std::optional<std::uint32_t> global(std::uint32_t rank) const noexcept;
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
  const ProcessGroup* group(std::uint32_t id) const noexcept;
  // Return empty if there is no such id.
  std::string_view text(std::uint32_t id) const noexcept { return find(texts_, id); }
  std::string_view operation(std::uint32_t id) const noexcept { return find(operations_, id); }

  std::string_view group_name(std::uint32_t id) const noexcept {
    const ProcessGroup* found = group(id);
    return found != nullptr ? found->name : std::string_view{};
  }

  const std::vector<Code>& codes() const noexcept { return codes_; }            // by id
  const std::vector<ProcessGroup>& groups() const noexcept { return groups_; }  // by id
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
  const char* add_code(std::uint32_t id, LevelNow now, std::string_view bytes);
  const char* add_group(std::uint32_t id, std::string_view bytes);
  std::uint64_t read_chunk(const RecordFile& file, std::uint64_t from, std::uint64_t end,
                           const char*& trouble);

  // Words, for alignment. Each chunk begins with an entry; its data never moves.
  std::vector<std::vector<std::uint64_t>> chunks_;
  std::vector<Code> codes_;
  std::vector<ProcessGroup> groups_;
  Names texts_, operations_;
  std::size_t entries_ = 0;
  std::string broken_;
};

// Maps bytecode offsets to lines: one code object's table, decoded once for many lookups.
//
// A table is the ranges of co_lines(), each as two numbers, lowest seven bits first: its
// instructions; 0 if it has no line, else 1 + twice the difference to the last line (minus 1 if it
// is negative).
//
// The file may be hostile. A table that no writer would write (cut short, a line outside
// 0..2^31-1) gives no lines at all. Decoding takes time and memory linear in the table's size.
class LineTable {
 public:
  LineTable(std::span<const std::uint8_t> table, std::uint32_t first_line);

  // Returns the line of the instruction at `offset`; empty if the compiler gave it no line or it is
  // beyond the end. Line 0 is valid: 3.11+ gives it to code before a module's first line. Offsets
  // are in bytes, also on 3.10, where f_lasti counts two-byte instructions.
  std::optional<std::uint32_t> line_at(std::uint32_t offset) const noexcept;

 private:
  struct Range {
    std::uint32_t start;  // ends at the next range's start
    std::uint32_t line;   // or kNoLine
  };
  std::vector<Range> ranges_;  // sorted; the last one has no line and starts at the code's end
};

// Makes the table of a code object whose co_firstlineno is `first_line`.
class LineTableWriter {
 public:
  explicit LineTableWriter(std::uint32_t first_line) noexcept : last_line_(first_line) {}
  void add(std::uint32_t bytes, std::optional<std::uint32_t> line);
  const std::string& take();

 private:
  std::string table_;
  std::uint32_t last_line_;
  std::uint32_t bytes_ = 0;            // of the last ranges
  std::optional<std::uint32_t> line_;  // theirs
};

}  // namespace oddrank::trace
