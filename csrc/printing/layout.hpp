// What lies in the lock file: one lock per output, shared by all of a user's processes on a host.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace oddrank::printing {

inline constexpr std::uint32_t kLanes = 4;
inline constexpr std::uint32_t kOutputs = 512;

// The lock itself. Robust: where its holder dies the kernel hands it on and says so. Held by one
// thread of one process, so threads and forked children need nothing besides.
struct Lane {
  pthread_mutex_t mutex;
  std::atomic<std::uint32_t> holder;  // pid, to look at a holder that does not move
  std::atomic<std::uint32_t> turns;   // counts acquisitions: a lock that moves is not stuck
  std::atomic<std::uint64_t>
      writing;  // the output's key while it is written: left by a holder = cut
};

// One output. A lane whose holder is stopped is left to it: `lane` moves on, and everybody locks
// lanes[lane % kLanes] from then on. The old holder finds out before it writes again.
struct alignas(64) Output {
  std::atomic<std::uint32_t> lane;
  std::atomic<std::uint64_t>
      cut;  // the output (its key) that was left in the middle of a line, or 0
  std::array<Lane, kLanes> lanes;
};

// Outputs are found by a hash of device and inode. Two that meet in one slot share a lock, which
// costs waiting and nothing else: `cut` says which of them is meant.
struct Table {
  std::atomic<std::uint64_t> magic;  // kMagic, stored last by who makes the file
  std::uint64_t size;
  std::array<Output, kOutputs> outputs;
};

// Change both with the layout. The file's name carries the version and what else could differ
// between two programs of one user (the C library's mutex), so that they never meet in one file.
inline constexpr std::uint64_t kMagic = 0x6f64'6470'7269'0001ULL;
inline constexpr char kVersion[] = "1";
#ifdef __GLIBC__
inline constexpr char kLibrary[] = "glibc";
#else
inline constexpr char kLibrary[] = "libc";
#endif

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace oddrank::printing
