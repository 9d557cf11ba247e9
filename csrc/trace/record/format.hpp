// The record file: one per process, mapped and shared, written in place, never flushed.
//
//   0        Header     what it is, whose it is, clocks, where the rest lies, counters
//   |        Dictionary entries, append-only: strings, code objects, groups, op names
//   |        Threads    slots: native id, name, shadow stack, head of the ring
//   |        Rings      blocks of 16-byte events; a thread's ring is one run of blocks
//   |        Marks      64-byte slots, claimed by fetch_add: steps, marks, sections, heartbeats
//   |        Collectives  the same for begin and end of collectives
//   size     Open       the collectives that have begun and not ended: never overwritten
//
// Every offset is in the header, so that a reader needs no knowledge of how a size is shared out.
// Numbers are little-endian (the header says so); all structs are plain and have no padding.
// A writer stores a record first and publishes it second (a head, a commit word): what died in
// between is not seen. A reader copies, then looks whether it was lapped meanwhile.
// A change of anything here is a new kVersion; readers read the older ones too.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace oddrank::trace {

constexpr char kMagic[8] = {'o', 'd', 'd', 'r', 'a', 'n', 'k', '\n'};
// 1 has no `end`, `raised` and `job`: where they are now it has zeros. All else is where it was.
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kOldestVersion = 1;
constexpr std::uint32_t kFirstWithEnd = 2;
constexpr std::uint32_t kEndian = 0x01020304;
constexpr std::size_t kPage = 4096;

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

// What an event says, and what a frame of a shadow stack did last.
enum class Kind : std::uint8_t {
  kNone = 0,
  kCall = 1,
  kResume = 2,  // a generator or coroutine goes on
  kLine = 3,
  kReturn = 4,
  kYield = 5,
  kUnwind = 6,  // left by an exception
  kThrow = 7,   // resumed by throw()
  kGap = 8,     // events were not recorded here: the stack was built anew
};
// Set in the kind where the position is an offset into the bytecode and not a line.
constexpr std::uint8_t kIsOffset = 0x80;
constexpr std::uint32_t kNoPosition = 0xFFFFFF;

// 8 bytes: code id 32 | position 24 | kind 8. Id 0 is "no code".
struct Place {
  std::uint64_t bits = 0;

  static constexpr Place of(std::uint32_t code, std::uint32_t position,
                            std::uint8_t kind) noexcept {
    const std::uint64_t cut = position < kNoPosition ? position : kNoPosition;
    return {std::uint64_t{code} | cut << 32 | std::uint64_t{kind} << 56};
  }
  constexpr std::uint32_t code() const noexcept { return static_cast<std::uint32_t>(bits); }
  constexpr std::uint32_t position() const noexcept {
    return static_cast<std::uint32_t>(bits >> 32) & 0xFFFFFF;
  }
  constexpr Kind kind() const noexcept { return static_cast<Kind>(bits >> 56 & 0x7F); }
  constexpr bool is_offset() const noexcept { return (bits >> 56 & kIsOffset) != 0; }
};

struct Event {
  Word tsc;
  Word place;
};
static_assert(sizeof(Event) == 16);

// One picture of three clocks; `number` is odd while it is being written.
struct ClockPair {
  Word number;
  Word tsc;
  Word monotonic_ns;
  Word realtime_ns;
};
constexpr std::size_t kClockPairs = 8;

// `count` things of `stride` bytes from `offset`.
struct Region {
  std::uint64_t offset = 0;
  std::uint32_t count = 0;
  std::uint32_t stride = 0;
  std::uint64_t bytes() const noexcept { return std::uint64_t{count} * stride; }
};

enum class HookState : std::uint32_t { kOff = 0, kArmed = 1, kDisarmed = 2, kDisplaced = 3 };

// What the process itself could say of its end. Who is killed, crashes or calls _exit() says
// nothing.
enum class End : std::uint8_t {
  kNone = 0,
  kEnding = 1,  // the script has ended: Python waits for threads and clears up
  kExited = 2,  // exit() was called, which is after Python has cleared up; its code is known
};

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endian;
  std::uint64_t size;  // of the whole file

  Region dictionary;  // stride 1
  Region threads;
  Region rings;  // blocks
  Region marks;
  Region collectives;
  Region open;

  std::uint32_t pid;
  std::uint32_t parent_pid;
  std::uint64_t start_time;     // of the process, in clock ticks since boot: the pid may come again
  std::uint64_t pid_namespace;  // inode of /proc/self/ns/pid: in another one the pid means nothing
  std::int32_t rank, local_rank, world, node;
  std::uint32_t python;    // PY_VERSION_HEX
  std::uint32_t is_child;  // forked or spawned by a rank: a DataLoader's worker
  char host[64];
  char boot_id[40];
  char hook[16];  // "settrace" or "monitoring"
  char arguments[512];

  ClockPair clocks[kClockPairs];

  Word dictionary_head;  // bytes written
  Word blocks_taken;
  Word marks_claimed;
  Word collectives_claimed;
  Word step;              // the last step(i), plus one
  Word hook_state;        // HookState
  Word lost_threads;      // found no free slot
  Word lost_codes;        // found no room in the dictionary
  Word lost_collectives;  // found no free place among the open ones
  char displaced_by[64];  // another tool that has taken the hook
  // From version 2 on.
  Word end;         // End 8 | exit code << 32
  char raised[64];  // type of the exception that ended the script; empty: none
  char job[128];    // the name of the folder that the file was made in
};
static_assert(sizeof(Header) <= kPage);

// ---- dictionary: entries one after the other, each padded to 8 bytes, its size word last written.
// A writer cuts longer names, which would fill a dictionary; a reader too: a file may be hostile,
// and a name is repeated for each frame that is shown.
constexpr std::size_t kLongestName = 4096;

enum class EntryKind : std::uint32_t { kText = 1, kCode = 2, kGroup = 3, kOperation = 4 };

struct EntryHead {
  Word size;          // of the whole entry with padding; 0: no entry yet
  std::uint32_t crc;  // CRC-32 of what follows this head
  std::uint32_t kind;
  std::uint32_t id;     // of its kind, from 1
  std::uint32_t bytes;  // that follow, without padding
};
static_assert(sizeof(EntryHead) == 24);

// Follows the head of a kCode entry; then `linetable` bytes, the qualified name.
struct CodeEntry {
  std::uint64_t source_hash;  // of the source file's bytes; 0: not known
  std::uint32_t first_line;
  std::uint32_t level;  // of the filter
  std::uint32_t linetable;
  std::uint32_t file;  // id of a kText entry, which comes before; 0: none
};
static_assert(sizeof(CodeEntry) == 24);

// ---- threads
enum class ThreadState : std::uint32_t { kFree = 0, kLive = 1, kEnded = 2 };

struct ThreadSlot {
  Word state;    // ThreadState | generation << 32: a slot is used again by a later thread
  Word head;     // events ever written to the ring
  Word depth;    // frames on the stack; may be more than it has room for
  Word changes;  // of the stack, for readers
  std::uint64_t python_id;  // threading.get_ident()
  std::uint64_t ring_offset;
  std::uint32_t ring_events;  // a power of two; 0: the thread has only its stack
  std::uint32_t tid;          // native
  std::uint32_t stack_room;
  std::uint32_t unused;
  char name[64];
  // Word stack[stack_room] follows: outermost first. Deeper frames share the last entry, which is
  // then the innermost one.
  Word* stack() noexcept { return reinterpret_cast<Word*>(this + 1); }
  const Word* stack() const noexcept { return reinterpret_cast<const Word*>(this + 1); }
};
static_assert(sizeof(ThreadSlot) == 128);

// ---- marks
enum class MarkKind : std::uint16_t {
  kStep = 1,
  kMark = 2,
  kSectionBegin = 3,
  kSectionEnd = 4,
  kHeartbeat = 5,
};

struct MarkSlot {
  Word commit;  // claim number + 1; written last
  Word tsc;
  Word value;    // the step, or the number of a section
  Word who;      // native thread id 32 | length of text 16 | MarkKind 16
  Word text[4];  // bytes, not terminated
};
static_assert(sizeof(MarkSlot) == 64);

// ---- collectives
enum class Phase : std::uint16_t {
  kBegin = 1,
  kEnd = 2,
  kIssued = 3,  // handed to a device, which goes on alone: no end of it will be recorded
};
constexpr std::uint16_t kNoType = 0xFFFF;  // a barrier has no data

struct CollectiveSlot {
  Word commit;  // ring: claim number + 1; table of open ones: the number, 0 where free
  Word tsc;
  Word number;    // of the collective in this process: joins begin, end and the open one
  Word sequence;  // of its group, as the back end counts; all ones: not known (yet)
  Word bytes;
  Word names;  // group id 32 | operation id 32
  Word who;    // native thread id 32 | data type 16 | Phase 16
  Word unused;
};
static_assert(sizeof(CollectiveSlot) == 64);

// CRC-32 (IEEE 802.3), as zlib has it.
std::uint32_t crc32(const void* data, std::size_t size) noexcept;

// Copies into a fixed field, cut and terminated.
template <std::size_t kSize>
void set_text(char (&field)[kSize], std::string_view text) noexcept {
  const std::size_t size = text.size() < kSize - 1 ? text.size() : kSize - 1;
  std::memcpy(field, text.data(), size);
  std::memset(field + size, 0, kSize - size);
}

// ---- plain fields that readers may copy while they are written: in whole words, never torn ones.
template <class T>
void publish(T& field, T value) noexcept {
  std::atomic_ref<T>(field).store(value, std::memory_order_relaxed);
}
template <std::size_t kSize>
void publish_text(char (&field)[kSize], std::string_view text) noexcept {
  static_assert(kSize % sizeof(std::uint64_t) == 0);
  char made[kSize];
  set_text(made, text);
  for (std::size_t at = 0; at < kSize; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, made + at, sizeof word);
    publish(*reinterpret_cast<std::uint64_t*>(field + at), word);
  }
}

}  // namespace oddrank::trace
