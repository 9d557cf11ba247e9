// The lock: a robust mutex in shared memory, and what to do with a holder that does not move.
//
// Order, in memory that only lock holders write (but for `lane` and `cut`, see abandon()):
//   take:  lock, writing = key, [read and clear cut], write(2)...
//   give:  [cut = key if unfinished], writing = 0, unlock
// Who dies in between leaves `writing`, which the next holder turns into `cut`.
#include "printing/lock.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/clock.hpp"
#include "base/fd.hpp"

namespace oddrank::printing {
namespace {

constexpr std::int64_t kSliceNs = 50'000'000;
constexpr int kSpins = 20;
// A holder that runs may only be short of CPU time: it gets this many timeouts.
constexpr std::int64_t kRunningFactor = 10;
// Naps before a waiter queues up at the mutex. Whoever is queued must be woken by a system call at
// every unlock, which doubles the price of a line; who naps costs the holder nothing.
constexpr int kNaps = 24;
constexpr std::int64_t kFirstNapNs = 30'000;
constexpr std::int64_t kLongestNapNs = 250'000;

std::atomic<std::uint32_t> cached_pid{0};

std::uint32_t own_pid() noexcept {
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { cached_pid.store(0, std::memory_order_relaxed); });
  static_cast<void>(registered);
  std::uint32_t pid = cached_pid.load(std::memory_order_relaxed);
  if (pid == 0) {
    pid = static_cast<std::uint32_t>(::getpid());
    cached_pid.store(pid, std::memory_order_relaxed);
  }
  return pid;
}

std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58'476d'1ce4'e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d0'49bb'1331'11ebULL;
  return x ^ (x >> 31);
}

std::uint64_t key_of(std::uint64_t major_number, std::uint64_t minor_number,
                     std::uint64_t inode) noexcept {
  return mix(mix(major_number << 32 | minor_number) + inode) | 1;
}

char process_state(std::uint32_t pid) noexcept {
  std::array<char, 64> path{};
  std::array<char, 512> text{};
  std::snprintf(path.data(), path.size(), "/proc/%u/stat", pid);
  const Fd file(::open(path.data(), O_RDONLY | O_CLOEXEC));
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return 'X';
  const char* name_end = std::strrchr(text.data(), ')');
  return name_end != nullptr && name_end[1] == ' ' ? name_end[2] : '?';
}

bool runs(char state) noexcept { return std::strchr("TtXZ", state) == nullptr; }

bool accepts_bytes(int fd) noexcept {
  pollfd output{fd, POLLOUT, 0};
  return ::poll(&output, 1, 0) != 0;
}

int lock_for_a_slice(pthread_mutex_t& mutex) noexcept {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 30)
  constexpr clockid_t kClock = CLOCK_MONOTONIC;
#else
  constexpr clockid_t kClock = CLOCK_REALTIME;
#endif
  timespec until{};
  ::clock_gettime(kClock, &until);
  until.tv_nsec += kSliceNs;
  if (until.tv_nsec >= 1'000'000'000) {
    until.tv_nsec -= 1'000'000'000;
    ++until.tv_sec;
  }
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 30)
  return ::pthread_mutex_clocklock(&mutex, kClock, &until);
#else
  return ::pthread_mutex_timedlock(&mutex, &until);
#endif
}

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// Not fstat: asking for the times of a file makes the next write to it store new ones, which
// doubles the price of that write (multigrain timestamps, Linux 6.13).
std::uint64_t output_key(int fd) noexcept {
  struct statx output {};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &output) != 0) {
    struct stat plain {};  // no statx: an old kernel or a sandbox
    if (errno == EBADF || ::fstat(fd, &plain) != 0) return 0;
    return key_of(major(plain.st_dev), minor(plain.st_dev), plain.st_ino);
  }
  return key_of(output.stx_dev_major, output.stx_dev_minor, output.stx_ino);
}

Turn::Turn(Table& table, std::uint64_t key, std::int64_t timeout_ms) noexcept
    : output_(table.outputs[(key >> 32) % kOutputs]),
      key_(key),
      timeout_ns_(timeout_ms * 1'000'000) {}

bool Turn::try_take() noexcept {
  for (int spin = 0; spin < kSpins; ++spin) {
    number_ = output_.lane.load(std::memory_order_acquire);
    const int result = ::pthread_mutex_trylock(&lane().mutex);
    if (result != EBUSY && settle(result)) return true;
    relax();
  }
  return false;
}

// A short sleep, each time twice as long, and a look.
bool Turn::nap() noexcept {
  const std::int64_t length = std::min(kFirstNapNs << std::min(naps_, 8), kLongestNapNs);
  const timespec pause{0, length};
  ::nanosleep(&pause, nullptr);
  ++naps_;
  return try_take();
}

bool Turn::wait(int fd) noexcept {
  while (naps_ < kNaps)
    if (nap()) return true;
  number_ = output_.lane.load(std::memory_order_acquire);
  if (moved_ns_ == 0) watch(monotonic_ns());
  const int result = lock_for_a_slice(lane().mutex);
  if (result != ETIMEDOUT) return settle(result);
  if (!stuck(fd)) return false;
  abandon();
  if (lanes_given_up_ < kLanes) return false;
  after_cut_ = true;
  return true;  // nothing left to try: write without the lock
}

// What a lock call returned: true where the turn is ours.
bool Turn::settle(int result) noexcept {
  if (result == EOWNERDEAD) result = ::pthread_mutex_consistent(&lane().mutex);
  if (result != 0) {  // broken for ever (somebody overwrote it): leave this lane
    abandon();
    return lanes_given_up_ >= kLanes;
  }
  if (!still_mine()) {  // given up by the others while we waited for it
    ::pthread_mutex_unlock(&lane().mutex);
    return false;
  }
  if (const std::uint64_t left = lane().writing.load(std::memory_order_relaxed); left != 0)
    output_.cut.store(left, std::memory_order_relaxed);
  lane().holder.store(own_pid(), std::memory_order_relaxed);
  lane().turns.fetch_add(1, std::memory_order_relaxed);
  lane().writing.store(key_, std::memory_order_relaxed);
  if (output_.cut.load(std::memory_order_relaxed) == key_) {
    after_cut_ = true;
    output_.cut.store(0, std::memory_order_relaxed);
  }
  held_ = true;
  return true;
}

bool Turn::still_mine() const noexcept {
  return output_.lane.load(std::memory_order_acquire) == number_;
}

void Turn::end(bool whole) noexcept {
  if (!whole) output_.cut.store(key_, std::memory_order_relaxed);
  if (!held_) return;
  lane().writing.store(0, std::memory_order_relaxed);
  ::pthread_mutex_unlock(&lane().mutex);
  held_ = false;
}

void Turn::watch(std::int64_t now) noexcept {
  turns_ = lane().turns.load(std::memory_order_relaxed);
  moved_ns_ = now;
  accepted_ns_ = now;
}

// After a slice without the lock: has its holder done nothing for the whole timeout?
bool Turn::stuck(int fd) noexcept {
  const std::int64_t now = monotonic_ns();
  if (!still_mine() || lane().turns.load(std::memory_order_relaxed) != turns_) {
    number_ = output_.lane.load(std::memory_order_acquire);
    watch(now);
    return false;
  }
  if (now - moved_ns_ < timeout_ns_) {
    if (!accepts_bytes(fd)) accepted_ns_ = now;
    return false;
  }
  const std::uint32_t pid = lane().holder.load(std::memory_order_relaxed);
  const char state = process_state(pid);
  if (runs(state)) {
    // A full pipe, a slow disk: it waits for what all would wait for.
    if (state == 'D' || !accepts_bytes(fd)) accepted_ns_ = now;
    if (now - accepted_ns_ < kRunningFactor * timeout_ns_) return false;
  }
  abandoned_ = {pid, state};
  return true;
}

// `cut` first: who takes the next lane must find it. Only one of those who wait moves the lane on.
void Turn::abandon() noexcept {
  const std::uint64_t left = lane().writing.load(std::memory_order_relaxed);
  if (left != 0) output_.cut.store(left, std::memory_order_relaxed);
  std::uint32_t expected = number_;
  if (!output_.lane.compare_exchange_strong(expected, number_ + 1, std::memory_order_acq_rel))
    abandoned_ = {};
  ++lanes_given_up_;
  number_ = output_.lane.load(std::memory_order_acquire);
  watch(monotonic_ns());
}

}  // namespace oddrank::printing
