// Opens a record file for reading: checks its header, copies its regions one at a time and converts
// its ticks to wall-clock time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/fd.hpp"
#include "trace/format/format.hpp"

namespace oddrank::trace {

// kUnknown: the record comes from another machine, boot or pid namespace: its pid is meaningless.
enum class Liveness : std::uint8_t { kUnknown, kAlive, kDead };

// Looks the process up in /proc. A zombie counts as dead.
Liveness liveness_of(const Process& process);

// One reading of all clocks: a ClockPair of the file.
struct ClockPicture {
  std::uint64_t tsc = 0;
  std::uint64_t monotonic_ns = 0;
  std::uint64_t realtime_ns = 0;
};

// An open record. Every region lies inside the file, is aligned and has a stride of this version,
// so that every index below a region's count is inside the file. The functions that read a region
// check its contents.
//
// Copies with pread(), not a mapping:
// - if the file is cut, a load from a mapping raises SIGBUS; pread() returns less: an Error;
// - a copy can't change between the check of an index and its use;
// - in tmpfs a load from a hole of a mapped file allocates a page, which would cost the job memory;
// - a snapshot copies only the few parts that it needs.
// The cost: reading a stack takes two system calls, so that a thread with a million calls per
// second appears torn more often. On x86-64 and arm64 the kernel copies aligned 8-byte words of
// this file whole (a test checks it). A group of words is consistent only if a second copy confirms
// it; the functions that read them do that.
class RecordFile {
 public:
  // Throws SystemError if the file can't be opened, Error if it is not a record of this version.
  // Follows no symbolic link in the last component; never blocks on a pipe.
  explicit RecordFile(const std::string& path);
  // Takes an open descriptor; `path` is for messages.
  RecordFile(Fd fd, std::string path);
  // Reads a record in memory, which must outlive this and begin at a multiple of 8 bytes: a copy,
  // or this process's own in the recorder's mapping, which stays valid if the file is deleted or
  // the program closes descriptors.
  RecordFile(std::span<const unsigned char> memory, std::string path);

  const std::string& path() const noexcept { return path_; }
  const Process& process() const noexcept { return process_; }
  std::uint64_t size() const noexcept { return layout_->size; }

  // Where the regions lie. Its words are of the moment when the file was opened.
  const Header& layout() const noexcept { return *layout_; }
  // Reads the current values.
  HeaderCopy header() const;
  // Returns the complete readings, in the file's order.
  std::vector<ClockPicture> clocks() const;

  // Copies `size` bytes; throws Error if the file has become shorter.
  void copy(std::uint64_t offset, void* to, std::size_t size) const;
  // Copies into words, for the structs of format.hpp.
  std::vector<std::uint64_t> words(std::uint64_t offset, std::size_t bytes) const;

 private:
  void open(std::uint64_t on_disk);
  void check(const Region& region, const char* name, std::uint64_t least_stride,
             std::uint64_t most_stride) const;

  Fd fd_;
  std::span<const unsigned char> memory_;  // instead of fd_
  std::string path_;
  HeaderCopy layout_;
  Process process_;
};

// Wall-clock time in nanoseconds; empty if unknown.
using Time = std::optional<std::int64_t>;

// A straight line through the first and the last reading of the clocks: ticks against the monotonic
// clock, which is never set. The last reading gives the wall-clock time, so a wall clock set in
// between (by NTP) does not bend the line.
//
// With only one reading the tick rate is unknown: only that moment is converted, since a guessed
// rate is wrong by seconds after minutes.
class Clock {
 public:
  enum class Knows : std::uint8_t { kNothing, kOneMoment, kLine };

  Clock() = default;
  explicit Clock(const std::vector<ClockPicture>& pictures);

  Knows knows() const noexcept { return knows_; }
  // Returns the time of the first clock reading, which arm() made.
  Time begin() const noexcept {
    return knows_ == Knows::kNothing ? std::nullopt : Time(realtime_ns_);
  }
  // Returns nanoseconds of CLOCK_REALTIME; empty if unknown.
  Time realtime_ns(std::uint64_t tsc) const noexcept;
  Time realtime_ns(std::optional<std::uint64_t> tsc) const noexcept {
    return tsc ? realtime_ns(*tsc) : std::nullopt;
  }

 private:
  // One moment by both clocks; for a line the first reading's.
  std::uint64_t tsc_ = 0;
  std::int64_t realtime_ns_ = 0;
  double ticks_per_ns_ = 0;
  Knows knows_ = Knows::kNothing;
};

// Returns the record's clock readings, and one of now if it was written on this boot.
std::vector<ClockPicture> clock_pictures(const RecordFile& file);
inline Clock clock_of(const RecordFile& file) { return Clock(clock_pictures(file)); }

}  // namespace oddrank::trace
