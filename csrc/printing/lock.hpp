// The lock file, with one lock per output, shared by all of a user's processes in one pid namespace
// of a host; a process's turn to write to an output: taken, watched, given back; and messages that
// are written as one piece, with a prefix before each line.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
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
// each other; `cut` says which one was cut.
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

// Finds, checks and maps the file once per process. Tries the folders in order
// (os/private_folder.hpp says which are refused). If none can be used, takes memory of this
// process. Throws std::bad_alloc only.
LockFile open_lock_file(const std::vector<std::string>& folders);

// Returns the key of an output (file, pipe, terminal, socket), the same for all its descriptors and
// never 0. Returns 0 and sets errno if the descriptor is not open.
std::uint64_t output_key(int fd) noexcept;

// Returns the output's lock. Several outputs may share one.
Output& output_of(Table& table, std::uint64_t key) noexcept;

// A holder that others gave up because it neither wrote nor gave its turn back.
struct Abandoned {
  std::uint32_t pid = 0;  // the holder's; 0: none was given up
  char state = '?';       // as in /proc/PID/stat; 'X' if it is gone
};

// Usage: if (!turn.try_take()) while (!turn.wait(fd)) look_at_signals();  write...; turn.end(true);
// Not reentrant: a thread that holds a turn must not wait for the same lock again.
class Turn {
 public:
  Turn(Table& table, std::uint64_t key, std::int64_t timeout_ms) noexcept;
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Tries without sleeping.
  bool try_take() noexcept;
  // Sleeps for at most 50 ms, so that the caller can run signal handlers in between. Returns
  // whether the caller may write now. Gives up a holder that is stopped or gone after the timeout,
  // and a running one after ten timeouts in which `fd` always accepted bytes (else no process could
  // write).
  bool wait(int fd) noexcept;
  // Returns whether a message was cut in the middle of a line: begin a new one.
  bool after_cut() const noexcept { return after_cut_; }
  // Returns false once others gave this holder up (it was stopped): write no more, take another
  // turn.
  bool still_mine() const noexcept;
  // `whole`: false if the message is unfinished. The next writer then begins a new line.
  void end(bool whole) noexcept;

  const Abandoned& abandoned() const noexcept { return abandoned_; }

 private:
  Lane& lane() const noexcept { return output_.lanes[number_ % kLanes]; }
  bool settle(int result) noexcept;
  bool nap() noexcept;
  bool stuck(int fd) noexcept;
  void abandon() noexcept;
  void watch(std::int64_t now) noexcept;

  Output& output_;
  const std::uint64_t key_;
  const std::int64_t timeout_ns_;
  std::uint32_t number_ = 0;  // number of the lane that is tried or held
  int naps_ = 0;
  bool held_ = false;  // false while writing without the lock: every lane was given up
  bool after_cut_ = false;
  std::uint32_t turns_ = 0;       // turns of the lane at the last check
  std::int64_t moved_ns_ = 0;     // when the lane last changed hands, as far as seen
  std::int64_t accepted_ns_ = 0;  // since when the output has accepted bytes
  std::uint32_t lanes_given_up_ = 0;
  Abandoned abandoned_;
};

// Called when a wait or a write was interrupted, perhaps with the turn held. Runs signal handlers
// and returns whether to stop.
struct Interrupt {
  bool (*run)(void* context);
  void* context;
  bool operator()() const { return run(context); }
};

inline constexpr int kInterrupted = -1;

// The locks that this thread holds, innermost first. A message that comes up while one is held (in
// a signal handler, in a write() written in Python) must neither wait for that lock, even where it
// is for another output that shares it, nor get into the middle of a line.
class Hold {
 public:
  enum class Kind : std::uint8_t { kWriting, kPython };
  Hold(Table& table, std::uint64_t key, Kind kind) noexcept;
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // The hold of this output, or null.
  static Hold* find(std::uint64_t key) noexcept;
  // Whether this thread holds the lock of `output`, be it for another output.
  static bool has(const Output& output) noexcept;
  Kind kind() const noexcept { return kind_; }
  std::string later;  // messages from inside a write, written after it

 private:
  const Output& output_;
  const std::uint64_t key_;
  const Kind kind_;
  Hold* const outer_;
};

// Waits for the turn. Returns false if `interrupt` said to stop.
bool take(Turn& turn, int fd, const Interrupt& interrupt);

// Returns whether the output may end in the middle of a line.
bool needs_new_line(int fd) noexcept;

// Writes the whole message. Returns 0, errno of the write, or kInterrupted. After an error or an
// interrupt the message stays unfinished, and the next one begins a new line. A message that lost
// its turn half-way (this process was stopped) is written again as a whole. If a non-blocking
// descriptor is full, waits until it has not moved for `timeout_ms`.
int write_message(Table& table, int fd, std::uint64_t key, std::string_view text,
                  std::int64_t timeout_ms, const Interrupt& interrupt, Abandoned& abandoned);

// Returns the warning that a holder was given up.
std::string abandoned_warning(const Abandoned& holder, std::int64_t timeout_ms);

// Returns `text` with `prefix` before every line, empty ones too; before the first one only if
// `at_line_start`. A newline at the end begins no line.
std::string prefix_lines(std::string_view text, std::string_view prefix, bool at_line_start);

}  // namespace oddrank::printing
