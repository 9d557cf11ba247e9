// The lock: a robust mutex in a mapped file, and how to go on if its holder does not move.
//
// Order, in memory that only lock holders write (but for `lane` and `cut`, see abandon()):
//   take:  lock, writing = key, [read and clear cut], write(2)...
//   give:  [cut = key if unfinished], writing = 0, unlock
// A holder that dies in between leaves `writing`, which the next holder turns into `cut`.
#include "printing/lock.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "os/clock.hpp"
#include "os/error.hpp"
#include "os/fd.hpp"
#include "os/mix.hpp"
#include "os/private_folder.hpp"
#include "os/proc.hpp"

namespace oddrank::printing {
namespace {

// Making or joining the file. Processes share the mapping; no descriptor stays open.

constexpr int kMakeMilliseconds = 10'000;

// One file per boot, for many hosts may mount $ODDRANK_DIR, and per pid namespace, for containers
// may share /dev/shm and a holder is looked up by its pid.
std::string file_name() {
  const std::string boot = boot_id();
  return std::string("printflock-") + kVersion + "-" + std::to_string(sizeof(pthread_mutex_t)) +
         "-" + std::to_string(pid_namespace()) + "-" + (boot.empty() ? "host" : boot);
}

void make_lane(Lane& lane, const pthread_mutexattr_t& robust) {
  new (&lane) Lane{};
  if (const int error = ::pthread_mutex_init(&lane.mutex, &robust); error != 0)
    throw SystemError("pthread_mutex_init", error);
}

void make_table(Table& table) {
  pthread_mutexattr_t robust;
  ::pthread_mutexattr_init(&robust);
  ::pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
  for (Output& output : table.outputs)
    for (Lane& lane : output.lanes) make_lane(lane, robust);
  ::pthread_mutexattr_destroy(&robust);
  table.size = sizeof(Table);
  table.magic.store(kMagic, std::memory_order_release);
}

// Locks the file while it is made. Waits ten seconds at most: its maker may be stopped.
void lock_to_make(int file) {
  const int error = lock_exclusively(file, Deadline::after_ms(kMakeMilliseconds));
  if (error == EWOULDBLOCK) {
    throw Error("another process is making the lock file and does not finish");
  }
  if (error != 0) throw SystemError("flock", error);
}

Table* map(int file, int flags) {
  void* memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, flags, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Table*>(memory);
}

bool has_room(int file) {
  struct stat entry {};
  return ::fstat(file, &entry) == 0 && entry.st_size >= static_cast<off_t>(sizeof(Table));
}

Table* map_file(int file) {
  Table* table = map(file, MAP_SHARED);
  if (table == nullptr) throw_errno("mmap the lock file");
  return table;
}

bool is_made(const Table& table) {
  return table.magic.load(std::memory_order_acquire) == kMagic && table.size == sizeof(Table);
}

Table* join(const std::string& folder) {
  const Fd place = open_private_folder(folder);
  const Fd file = open_private_file(place.get(), file_name(), O_RDWR | O_CREAT);
  Table* table = has_room(file.get()) ? map_file(file.get()) : nullptr;
  if (table != nullptr && is_made(*table)) return table;
  lock_to_make(file.get());
  if (table == nullptr) {
    // Allocates the blocks now: a full /dev/shm is an error here and no SIGBUS later.
    if (const int error = ::posix_fallocate(file.get(), 0, sizeof(Table)); error != 0)
      throw SystemError("make room for the lock file", error);
    table = map_file(file.get());
  }
  // The maker may have died: a table without its magic is in no use and is made again.
  if (!is_made(*table)) make_table(*table);
  return table;
}

}  // namespace

LockFile open_lock_file(const std::vector<std::string>& folders) {
  std::string refused;
  for (const std::string& folder : folders) {
    try {
      return {join(folder), folder + "/" + file_name(), refused};
    } catch (const Error& error) {
      refused += (refused.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  Table* table = map(-1, MAP_SHARED | MAP_ANONYMOUS);
  if (table == nullptr) throw std::bad_alloc();
  make_table(*table);
  return {table, "", refused};
}

namespace {

constexpr std::int64_t kSliceNs = 50'000'000;
constexpr int kSpins = 20;
// A running holder may be short of CPU time: it gets this many timeouts.
constexpr std::int64_t kRunningFactor = 10;
// Naps before a waiter queues up at the mutex. Each unlock wakes a queued waiter by a system call,
// which doubles the price of a line. A napping one costs the holder nothing.
constexpr int kNaps = 24;
constexpr std::int64_t kFirstNapNs = 30'000;
constexpr std::int64_t kLongestNapNs = 250'000;

std::atomic<std::uint32_t> cached_pid{0};

// Registers when the library is loaded. A thread that did so while it prints would wait for a fork
// in another thread, and the child would wait for that thread, which it does not have.
[[maybe_unused]] const int registered =
    ::pthread_atfork(nullptr, nullptr, [] { cached_pid.store(0, std::memory_order_relaxed); });

std::uint32_t own_pid() noexcept {
  std::uint32_t pid = cached_pid.load(std::memory_order_relaxed);
  if (pid == 0) {
    pid = static_cast<std::uint32_t>(::getpid());
    cached_pid.store(pid, std::memory_order_relaxed);
  }
  return pid;
}

std::uint64_t key_of(std::uint64_t major_number, std::uint64_t minor_number,
                     std::uint64_t inode) noexcept {
  return mix_bits(mix_bits(major_number << 32 | minor_number) + inode) | 1;
}

bool accepts_bytes(int fd) noexcept {
  pollfd output{fd, POLLOUT, 0};
  return ::poll(&output, 1, 0) != 0;
}

int lock_for_a_slice(pthread_mutex_t& mutex) noexcept {
#if __GLIBC_PREREQ(2, 30)
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
#if __GLIBC_PREREQ(2, 30)
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

// Not fstat: reading a file's times makes the next write store new ones, which doubles its price
// (multigrain timestamps, Linux 6.13).
std::uint64_t output_key(int fd) noexcept {
  struct statx output {};
  if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &output) != 0) {
    struct stat plain {};  // no statx: an old kernel or a sandbox
    if (errno == EBADF || ::fstat(fd, &plain) != 0) return 0;
    return key_of(major(plain.st_dev), minor(plain.st_dev), plain.st_ino);
  }
  return key_of(output.stx_dev_major, output.stx_dev_minor, output.stx_ino);
}

Output& output_of(Table& table, std::uint64_t key) noexcept {
  return table.outputs[(key >> 32) % kOutputs];
}

Turn::Turn(Table& table, std::uint64_t key, std::int64_t timeout_ms) noexcept
    : output_(output_of(table, key)), key_(key), timeout_ns_(timeout_ms * 1'000'000) {}

bool Turn::try_take() noexcept {
  for (int spin = 0; spin < kSpins; ++spin) {
    number_ = output_.lane.load(std::memory_order_acquire);
    const int result = ::pthread_mutex_trylock(&lane().mutex);
    if (result != EBUSY && settle(result)) return true;
    relax();
  }
  return false;
}

// Sleeps, each time twice as long, and tries again.
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
  // A holder that ended while this process waited for a core has left the lock free.
  if (const int last = ::pthread_mutex_trylock(&lane().mutex); last != EBUSY) {
    abandoned_ = {};
    return settle(last);
  }
  if (lane().turns.load(std::memory_order_relaxed) != turns_) {  // or another one has it by now
    abandoned_ = {};
    watch(monotonic_ns());
    return false;
  }
  abandon();
  if (lanes_given_up_ < kLanes) return false;
  after_cut_ = true;
  return true;  // nothing left to try: write without the lock
}

// Takes the result of a lock call. Returns whether the turn is ours.
bool Turn::settle(int result) noexcept {
  if (result == EOWNERDEAD) result = ::pthread_mutex_consistent(&lane().mutex);
  if (result != 0) {  // the mutex was overwritten and never works again: leave this lane
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

// Returns whether the holder has done nothing for its whole timeout.
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
  const ProcStat holder = read_stat(static_cast<pid_t>(pid));
  const bool gone = holder.state == 0 || holder.is_zombie();
  if (!gone && !holder.is_stopped()) {
    // A full pipe or a slow disk: every writer would wait for it.
    if (holder.state == 'D' || !accepts_bytes(fd)) accepted_ns_ = now;
    if (now - accepted_ns_ < kRunningFactor * timeout_ns_) return false;
  }
  abandoned_ = {pid, gone ? 'X' : holder.state};
  return true;
}

// Stores `cut` first: the next lane's holder must find it. Only one waiter moves the lane on.
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

// The write loop: partial writes, interrupts, non-blocking pipes, lost turns.
namespace {

constexpr int kSliceMs = 50;
constexpr int kLostTurn = -2;

thread_local Hold* innermost = nullptr;

bool would_block(int error) noexcept { return error == EAGAIN || error == EWOULDBLOCK; }

// Waits for room in a full descriptor. Returns 0, kInterrupted, or EAGAIN after timeout_ms.
int wait_for_room(int fd, std::int64_t timeout_ms, const Interrupt& interrupt) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  while (true) {
    // Once late it checks again: this process may have waited for a core while room was made.
    const bool late = deadline.passed();
    pollfd output{fd, POLLOUT, 0};
    if (::poll(&output, 1, std::min(kSliceMs, deadline.remaining_ms())) > 0) return 0;
    if (late) return EAGAIN;
    if (interrupt()) return kInterrupted;
  }
}

// Writes all of `text` and counts in `done`. `turn`: null if a caller further out holds the lock.
int write_all(const Turn* turn, int fd, std::string_view text, std::size_t& done,
              std::int64_t timeout_ms, const Interrupt& interrupt) {
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote > 0) {
      done += static_cast<std::size_t>(wrote);
      if (done < text.size() && turn != nullptr && !turn->still_mine()) return kLostTurn;
      continue;
    }
    const int error = wrote == 0 ? ENOSPC : errno;
    if (error == EINTR) {
      if (interrupt()) return kInterrupted;
    } else if (would_block(error)) {
      if (const int waited = wait_for_room(fd, timeout_ms, interrupt); waited != 0) return waited;
    } else {
      return error;
    }
    if (turn != nullptr && !turn->still_mine()) return kLostTurn;
  }
  return 0;
}

}  // namespace

Hold::Hold(Table& table, std::uint64_t key, Kind kind) noexcept
    : output_(output_of(table, key)), key_(key), kind_(kind), outer_(innermost) {
  innermost = this;
}

Hold::~Hold() { innermost = outer_; }

Hold* Hold::find(std::uint64_t key) noexcept {
  for (Hold* hold = innermost; hold != nullptr; hold = hold->outer_)
    if (hold->key_ == key) return hold;
  return nullptr;
}

bool Hold::has(const Output& output) noexcept {
  for (const Hold* hold = innermost; hold != nullptr; hold = hold->outer_)
    if (&hold->output_ == &output) return true;
  return false;
}

bool take(Turn& turn, int fd, const Interrupt& interrupt) {
  if (turn.try_take()) return true;
  while (!turn.wait(fd))
    if (interrupt()) return false;
  return true;
}

// A file can be asked for its last byte, through a descriptor of our own (ours may be write-only).
bool needs_new_line(int fd) noexcept {
  struct stat output {};
  if (::fstat(fd, &output) != 0 || !S_ISREG(output.st_mode)) return true;
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  const Fd again(::open(path.data(), O_RDONLY | O_CLOEXEC));
  char last = 0;
  if (!again || output.st_size == 0) return output.st_size != 0;
  return ::pread(again.get(), &last, 1, output.st_size - 1) != 1 || last != '\n';
}

int write_message(Table& table, int fd, std::uint64_t key, std::string_view text,
                  std::int64_t timeout_ms, const Interrupt& interrupt, Abandoned& abandoned) {
  if (Hold* outer = Hold::find(key); outer && outer->kind() == Hold::Kind::kWriting) {
    outer->later += text;
    return 0;
  }
  if (Hold::has(output_of(table, key))) {
    std::size_t done = 0;
    return write_all(nullptr, fd, text, done, timeout_ms, interrupt);
  }
  std::string later;
  int error = kLostTurn;
  while (error == kLostTurn) {
    Turn turn(table, key, timeout_ms);
    const bool taken = take(turn, fd, interrupt);
    if (turn.abandoned().pid != 0) abandoned = turn.abandoned();
    if (!taken) return kInterrupted;
    Hold hold(table, key, Hold::Kind::kWriting);
    const bool new_line = turn.after_cut() && needs_new_line(fd);
    std::size_t done = 0;
    error = new_line ? write_all(&turn, fd, "\n", done, timeout_ms, interrupt) : 0;
    const bool at_line_start = !new_line || done == 1;
    done = 0;
    if (error == 0) error = write_all(&turn, fd, text, done, timeout_ms, interrupt);
    // Whole: none or all of our message is there. A lost turn was marked as cut by its taker.
    turn.end(error == 0 || error == kLostTurn || (done == 0 && at_line_start));
    later += hold.later;
  }
  if (!later.empty()) {
    Abandoned ignored;
    static_cast<void>(write_message(table, fd, key, later, timeout_ms, interrupt, ignored));
  }
  return error;
}

std::string abandoned_warning(const Abandoned& holder, std::int64_t timeout_ms) {
  std::array<char, 200> text{};
  const char* why = "does not go on";
  if (holder.state == 'T') why = "is stopped";
  if (holder.state == 't') why = "is held by a debugger";
  if (holder.state == 'X') why = "is gone";
  std::snprintf(
      text.data(), text.size(),
      "oddrank: printflock: process %u %s and has held the print lock for %.3g s: going on "
      "without it (set ODDRANK_PRINT_TIMEOUT to wait longer; said once)\n",
      holder.pid, why, static_cast<double>(timeout_ms) / 1000);
  return text.data();
}

std::string prefix_lines(std::string_view text, std::string_view prefix, bool at_line_start) {
  std::string out;
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  out.reserve(text.size() + lines * prefix.size());
  while (!text.empty()) {
    if (at_line_start) out += prefix;
    const std::size_t end = text.find('\n');
    const std::size_t size = end == std::string_view::npos ? text.size() : end + 1;
    out += text.substr(0, size);
    text.remove_prefix(size);
    at_line_start = true;
  }
  return out;
}

}  // namespace oddrank::printing
