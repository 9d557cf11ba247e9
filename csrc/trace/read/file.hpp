// A record file opened by a reader: its header checked, its parts copied out one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "trace/record/format.hpp"

namespace oddrank::trace {

// No record is larger. With it, no number in a hostile file makes a reader take more memory.
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;

// Whose record it is. Texts are somebody else's bytes, cut at their field; they may be no UTF-8.
struct Process {
  std::uint32_t pid = 0;
  std::uint32_t parent_pid = 0;
  std::uint64_t start_time = 0;
  std::uint64_t pid_namespace = 0;
  std::int32_t rank = 0, local_rank = 0, world = 0, node = 0;
  std::uint32_t python = 0;
  bool is_child = false;
  std::string host;
  std::string boot_id;
  std::string job;  // empty before version 2
  std::string hook;
  std::string arguments;
};

// The header's live words at one moment.
struct Counters {
  std::uint64_t dictionary_bytes = 0;
  std::uint64_t blocks_taken = 0;
  std::uint64_t marks_claimed = 0;
  std::uint64_t collectives_claimed = 0;
  std::optional<std::uint64_t> step;  // the last step(i); none before the first
  std::uint64_t hook_state = 0;       // a HookState, or what a broken file says
  std::uint64_t lost_threads = 0;
  std::uint64_t lost_codes = 0;
  std::uint64_t lost_collectives = 0;
  std::string displaced_by;
  std::optional<End> end;  // none: a record that does not say so, whatever happens
  int exit_code = 0;       // of End::kExited
  std::string raised;
};

// One picture of the clocks, as it stood in the file.
struct ClockPicture {
  std::uint64_t tsc = 0;
  std::uint64_t monotonic_ns = 0;
  std::uint64_t realtime_ns = 0;
};

// An open record. Every region is inside the file, aligned, behind the header and of this version's
// stride, so that an index below a region's count is an offset inside the file. What the parts hold
// is not checked here: who reads one checks it.
//
// The file is copied with pread() and not mapped, although mapping was the first idea:
// - who may write the file may cut it too, and a load from a mapping beyond the new end is SIGBUS;
//   pread() comes back short, which is an Error;
// - a copy can't change between the check of an index and its use;
// - in tmpfs a load from a hole of a mapped file makes a page, so that looking costs the job
// memory;
// - a snapshot wants a few parts of a file, and those are what is copied.
// Price: a look at a stack is two system calls, so that a thread that calls and returns a million
// times a second is seen torn more often. The kernel copies aligned 8-byte words of this file as
// whole words on x86-64 and arm64 (a test watches it); pictures of more than one word are
// consistent only where a second look says so, in the functions that take them.
class RecordFile {
 public:
  // Throws SystemError where it can't be opened, Error where it isn't a record that this oddrank
  // reads. Follows no symbolic link in the last component; never waits (for a pipe's other end).
  explicit RecordFile(const std::string& path);
  // The same with a descriptor opened by the caller; `path` is for messages.
  RecordFile(Fd fd, std::string path);
  // This process's own, as it has it in memory: there for ever, whatever becomes of the file and of
  // the program's descriptors. No one else can cut it unnoticed by the recorder itself.
  RecordFile(std::span<const unsigned char> memory, std::string path);

  const std::string& path() const noexcept { return path_; }
  const Process& process() const noexcept { return process_; }
  std::uint64_t size() const noexcept { return size_; }

  // Where count is 0, so are offset and stride.
  const Region& dictionary() const noexcept { return dictionary_; }
  const Region& threads() const noexcept { return threads_; }
  const Region& rings() const noexcept { return rings_; }
  const Region& marks() const noexcept { return marks_; }
  const Region& collectives() const noexcept { return collectives_; }
  const Region& open() const noexcept { return open_; }

  // As they are now.
  Counters counters() const;
  // Those that are whole, in the file's order.
  std::vector<ClockPicture> clocks() const;

  // Copies `size` bytes; throws Error where the file has become shorter.
  void copy(std::uint64_t offset, void* to, std::size_t size) const;
  // The same into words of their own, for the structs of format.hpp.
  std::vector<std::uint64_t> words(std::uint64_t offset, std::size_t bytes) const;

 private:
  struct Page;
  void open(std::uint64_t on_disk);
  std::unique_ptr<Page> header() const;
  void check(const Header& header, std::uint64_t on_disk) const;
  Region checked(const Region& region, const char* name, std::uint64_t least_stride,
                 std::uint64_t most_stride) const;

  Fd fd_;
  std::span<const unsigned char> memory_;  // instead of fd_
  std::string path_;
  std::uint64_t size_ = 0;
  Process process_;
  Region dictionary_, threads_, rings_, marks_, collectives_, open_;
};

// A fixed field up to its first zero byte.
template <std::size_t kSize>
std::string_view text_of(const char (&field)[kSize]) noexcept {
  return {field, ::strnlen(field, kSize)};
}

// What a word of a copied struct says: a copy has one reader, so any order will do.
inline std::uint64_t value_of(const Word& word) noexcept {
  return word.load(std::memory_order_relaxed);
}

}  // namespace oddrank::trace
