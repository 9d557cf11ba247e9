// The lock file: one lock per output, shared by all of a user's processes in one pid namespace of a
// host. Found, checked and mapped once per process.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace oddrank::printing {

inline constexpr std::uint32_t kLanes = 4;
inline constexpr std::uint32_t kOutputs = 512;

// The lock itself. Robust: if its holder dies, the kernel hands it on and reports that. One thread
// of one process holds it, so threads and forked children need nothing else.
struct Lane {
  pthread_mutex_t mutex;
  std::atomic<std::uint32_t> holder;   // pid, to examine a holder that does not move
  std::atomic<std::uint32_t> turns;    // counts acquisitions: a lock that moves is not stuck
  std::atomic<std::uint64_t> writing;  // key of the output being written; left by a dead holder
};

// One output. If a holder is stopped, `lane` moves on, and all processes lock lanes[lane % kLanes]
// from then on. The old holder notices before it writes again.
struct alignas(64) Output {
  std::atomic<std::uint32_t> lane;
  std::atomic<std::uint64_t> cut;  // key of the output that was left in the middle of a line, or 0
  std::array<Lane, kLanes> lanes;
};

// A hash of device and inode finds the output. Two outputs in one slot share a lock and wait for
// each other; `cut` says which of them was cut.
struct Table {
  std::atomic<std::uint64_t> magic;  // kMagic, stored last when the file is made
  std::uint64_t size;
  std::array<Output, kOutputs> outputs;
};

// Change both with the layout. The file's name carries the version and the size of a mutex, so that
// programs with another layout take another file.
inline constexpr std::uint64_t kMagic = 0x6f64'6470'7269'0001ULL;
inline constexpr char kVersion[] = "1";

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct LockFile {
  Table* table;         // stays mapped until the process ends; children inherit it
  std::string path;     // empty: memory that only forked children share
  std::string refused;  // why earlier folders were not used, one line; empty if the first one was
};

// Tries the folders in order (os/private_folder.hpp says which are refused). If none can be used,
// takes memory of this process. Throws std::bad_alloc only.
LockFile open_lock_file(const std::vector<std::string>& folders);

}  // namespace oddrank::printing
