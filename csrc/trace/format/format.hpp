// The record file: one per process, mapped and shared, written in place, never flushed.
//
//   0     Header       version, process, clocks, offsets of all regions, counters
//   4096  Dictionary   entries, append-only: strings, code objects, groups, operations
//   |     Threads      slots: native id, name, shadow stack, time of its sample, head of the ring
//   |     Open         collectives that have begun and not ended: never overwritten
//   |     Groups       how far each process group has come: never overwritten
//   |     Marks        64-byte slots, claimed by fetch_add: steps, marks, sections
//   |     Collectives  64-byte slots, claimed by fetch_add: begin and end of each collective
//   |     Timed        64-byte slots: calls whose time on a device is known
//   |     Rings        blocks of 16-byte events; a thread's ring is one run of blocks
//   size
//
// The header holds every offset: a reader needs no layout rules. Numbers are in the writer's byte
// order, which the header states. All structs are plain and have no padding.
// A writer stores a record, then publishes it (a head, a commit word): readers never see a record
// whose writer died in between. A reader copies, then checks that nothing it copied was
// overwritten. Increase kVersion with any change to this file format.
#pragma once

#include <time.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "os/encoding.hpp"

namespace oddrank::trace {

constexpr char kMagic[8] = {'o', 'd', 'd', 'r', 'a', 'n', 'k', '\n'};
constexpr std::uint32_t kVersion = 7;
// The newest CPython (sys.hexversion >> 16) whose frames are known.
constexpr std::uint32_t kNewestPython = 0x030f;
constexpr std::uint32_t kEndian = 0x01020304;
constexpr std::size_t kPage = 4096;

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

// The kind of an event, and of the last event of a frame in a shadow stack.
enum class Kind : std::uint8_t {
  kNone = 0,
  kCall = 1,
  kResume = 2,  // a generator or coroutine continues
  kLine = 3,
  kReturn = 4,
  kYield = 5,
  kUnwind = 6,    // left by an exception
  kThrow = 7,     // resumed by throw()
  kGap = 8,       // events are missing here: the stack was rebuilt
  kLevel = 9,     // its code is recorded at another level from here on: the position is a Level
  kSampled = 10,  // in stacks only: the position is where the code was at ThreadSlot::sampled
};
// How much is recorded of a code object. Each level adds: frames in the stack; calls; lines.
enum class Level : std::uint8_t { kOff = 0, kWhere = 1, kCalls = 2, kLines = 3 };
constexpr std::array<const char*, 4> kLevelNames{"off", "where", "calls", "lines"};

// Flag in the kind byte: the position is a bytecode offset, not a line number.
constexpr std::uint8_t kIsOffset = 0x80;
constexpr std::uint32_t kNoPosition = 0xFFFFFF;

// 8 bytes, from the lowest bit: code id 32 | position 24 | kind 8. Id 0 means no code.
struct Place {
  std::uint64_t bits = 0;

  static constexpr Place of(std::uint32_t code, std::uint32_t position,
                            std::uint8_t kind) noexcept {
    const std::uint64_t cut = position < kNoPosition ? position : kNoPosition;
    return {std::uint64_t{code} | cut << 32 | std::uint64_t{kind} << 56};
  }
  static constexpr Place of(std::uint32_t code, std::uint32_t position, Kind kind,
                            std::uint8_t flag = 0) noexcept {
    return of(code, position, static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | flag));
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

// Three clocks, read together. `number` is odd during a write.
struct ClockPair {
  Word number;
  Word tsc;
  Word monotonic_ns;
  Word realtime_ns;
};
constexpr std::size_t kClockPairs = 8;

// `count` elements of `stride` bytes each, starting at `offset`.
struct Region {
  std::uint64_t offset = 0;
  std::uint32_t count = 0;
  std::uint32_t stride = 0;
  std::uint64_t bytes() const noexcept { return std::uint64_t{count} * stride; }
};

// The numbers of a process.
struct ProcessNumbers {
  std::uint32_t pid = 0;
  std::uint32_t parent_pid = 0;
  std::uint64_t start_time = 0;     // in clock ticks since boot: pids are reused
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid: `pid` is valid only within it
  std::int32_t rank = 0, local_rank = 0, world = 0, node = 0;
  std::uint32_t python = 0;    // sys.hexversion
  std::uint32_t is_child = 0;  // 1: forked or spawned by a rank (a DataLoader worker)
};

// CPython's interfaces that the recorder can hook.
inline constexpr std::string_view kHooks[] = {"settrace", "monitoring"};

enum class HookState : std::uint32_t { kOff = 0, kArmed = 1, kDisarmed = 2, kDisplaced = 3 };

// The process of a record. A reader's texts are the writer's bytes, cut to fit: possibly invalid
// UTF-8.
struct Process : ProcessNumbers {
  std::string host;
  std::string boot_id;
  std::string job;
  std::string hook;
  std::string arguments;
};

// How the process ended, as it noted itself. A process that is killed, crashes or calls _exit()
// notes nothing.
enum class End : std::uint8_t {
  kNone = 0,
  kEnding = 1,  // the script has ended: Python joins threads and finalizes
  kExited = 2,  // exit() was called, after Python finalized; the exit code is known
};

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endian;
  std::uint64_t size;  // the whole file, in bytes

  Region dictionary;  // stride 1
  Region threads;
  Region rings;  // blocks
  Region marks;
  Region collectives;
  Region open;
  Region groups;

  ProcessNumbers process;
  char host[64];
  char boot_id[40];
  char hook[16];  // one of kHooks
  char arguments[512];

  ClockPair clocks[kClockPairs];

  Word dictionary_head;  // bytes written
  Word blocks_taken;
  Word marks_claimed;
  Word collectives_claimed;
  Word step;               // last step(i) + 1; 0: no step yet
  Word hook_state;         // HookState
  Word lost_threads;       // threads without a slot
  Word lost_codes;         // code objects without room in the dictionary
  Word lost_collectives;   // collectives without a slot in Open
  Word lost_groups;        // groups in which collectives were begun without a slot in Groups
  char displaced_by[64];   // the tool that took the hook
  Word end;                // End 8 | 24 unused | exit code 32
  char raised[64];         // type of the exception that ended the script or, before, a thread
  char job[128];           // name of the folder in which the file was created
  Word collectives_since;  // ticks when collectives were first recorded; 0: never
  char message[192];       // of that exception: its first line and, after ", after " or "after ",
                           // the first line of the one before it; "" in files of before
  char raised_at[256];     // where, in lines: line, function, file; "" in files of before. If it
                           // ended the script, a space and its Unix time follow the line; of a
                           // thread that raised, a line before these: "thread", then its name
  Word gil_wanted;         // ticks since when the sampler waits for the GIL; 0: it does not
  Region timed;            // stride of a CollectiveSlot
  Word timed_claimed;
  Word sampled_since;  // ticks since when no code gives events, only samples; 0: code does
};
static_assert(sizeof(Header) <= kPage);

// Reads a word of a copied struct. Only one thread uses a copy, so relaxed order suffices.
inline std::uint64_t value_of(const Word& word) noexcept {
  return word.load(std::memory_order_relaxed);
}

// A header at one moment. A broken file may hold any number.
struct HeaderCopy {
  alignas(Header) std::array<unsigned char, sizeof(Header)> bytes{};

  const Header& operator*() const noexcept { return *reinterpret_cast<const Header*>(&bytes); }
  const Header* operator->() const noexcept { return &**this; }
  // Returns the number of the last step(); empty before the first.
  std::optional<std::uint64_t> step() const noexcept {
    const std::uint64_t next = value_of((*this)->step);
    return next == 0 ? std::nullopt : std::optional(next - 1);
  }
  End end() const noexcept { return static_cast<End>(value_of((*this)->end) & 0xFF); }
  int exit_code() const noexcept { return static_cast<int>(value_of((*this)->end) >> 32 & 0xFF); }
};

// ---- dictionary: consecutive entries, padded to 8 bytes; an entry's size word is written last.
// The writer cuts longer names: they would fill the dictionary. Readers cut them too: a hostile
// file could repeat a long name in every frame.
constexpr std::size_t kLongestName = 4096;

enum class EntryKind : std::uint32_t { kText = 1, kCode = 2, kGroup = 3, kOperation = 4 };

struct EntryHead {
  Word size;          // of the whole entry, with padding; 0: no entry yet
  std::uint32_t crc;  // CRC-32 of the bytes that follow this head
  std::uint32_t kind;
  std::uint32_t id;     // counts from 1 within its kind
  std::uint32_t bytes;  // number of bytes that follow, without padding
  Word now;             // of a kCode entry: its LevelNow
};
static_assert(sizeof(EntryHead) == 32);

// The level at which a code object is recorded since a moment: code that runs too often is recorded
// less closely than the filter says. From the lowest bit: Level 2 | changed 1 | ticks without their
// lowest 3 bits. 0: always recorded at the filter's level.
struct LevelNow {
  std::uint64_t bits = 0;

  static constexpr std::uint64_t kChanged = 4;
  static constexpr LevelNow of(Level level, std::uint64_t tsc) noexcept {
    return {(tsc & ~std::uint64_t{7}) | kChanged | static_cast<std::uint64_t>(level)};
  }
  constexpr bool is_changed() const noexcept { return (bits & kChanged) != 0; }
  constexpr Level level() const noexcept { return static_cast<Level>(bits & 3); }
  constexpr std::uint64_t since() const noexcept { return bits & ~std::uint64_t{7}; }
};

// Follows the head of a kCode entry; then come `linetable` bytes and the qualified name.
struct CodeEntry {
  std::uint32_t first_line;
  std::uint32_t level;  // the filter's Level
  std::uint32_t linetable;
  std::uint32_t file;  // id of an earlier kText entry; 0: none
};
static_assert(sizeof(CodeEntry) == 16);

constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
// Longest list of runs, and most ranks of a group.
constexpr std::uint32_t kMostRuns = 1024;
constexpr std::uint32_t kMostRanks = 1 << 20;

// Global ranks first, first + step, ...: `count` of them. Most groups are one run.
struct RankRun {
  std::uint32_t first;
  std::uint32_t step;
  std::uint32_t count;
};

// Follows the head of a kGroup entry; then come `runs` RankRuns, the name, the back end's name and
// the description. A group with two back ends (cpu:gloo,cuda:nccl) has an entry for each: they
// number their operations apart.
struct GroupEntry {
  std::uint32_t size;     // number of ranks; 0: unknown
  std::uint32_t own;      // this process's rank in the group; kNoRank: unknown
  std::uint32_t runs;     // of `size` ranks together, in group order; 0: ranks unknown
  std::uint32_t name;     // bytes
  std::uint32_t backend;  // bytes
};
static_assert(sizeof(GroupEntry) == 20 && sizeof(RankRun) == 12);

// ---- threads
enum class ThreadState : std::uint32_t { kFree = 0, kLive = 1, kEnded = 2 };

struct ThreadSlot {
  Word state;               // ThreadState | generation << 32: later threads reuse slots
  Word head;                // number of events ever written to the ring
  Word depth;               // frames on the stack; may exceed stack_room
  Word changes;             // grows with every change of the depth: readers detect a torn copy
  Word sampled;             // ticks of the last sample of the stack; 0: none
  std::uint64_t python_id;  // threading.get_ident()
  std::uint64_t ring_offset;
  std::uint32_t ring_events;  // a power of two; 0: no ring, only the stack
  std::uint32_t tid;          // native thread id
  std::uint32_t stack_room;
  std::uint32_t unused;
  char name[64];
  // Word stack[stack_room] follows, outermost frame first. Frames beyond stack_room share the last
  // entry, which then shows the innermost frame.
  Word* stack() noexcept { return reinterpret_cast<Word*>(this + 1); }
  const Word* stack() const noexcept { return reinterpret_cast<const Word*>(this + 1); }
};
static_assert(sizeof(ThreadSlot) == 136);

// ---- marks. The begin of a section that stays open is written again, with its old time, before
// the ring overwrites it.
enum class MarkKind : std::uint16_t { kStep = 1, kMark = 2, kSectionBegin = 3, kSectionEnd = 4 };

struct MarkSlot {
  Word commit;  // claim number + 1; written last
  Word tsc;
  Word value;    // the step, or the section's number
  Word who;      // native thread id 32 | length of text 16 | MarkKind 16
  Word text[4];  // bytes, not terminated
};
static_assert(sizeof(MarkSlot) == 64);

// ---- collectives
enum class Phase : std::uint8_t {
  kBegin = 1,
  kEnd = 2,
  kIssued = 3,  // handed to a device: its end will not be recorded
  kFailed = 4,  // an end with an error
};
constexpr std::uint16_t kNoType = 0xFFFF;  // a barrier has no data
constexpr std::uint64_t kNoCount = ~std::uint64_t{0};
constexpr std::uint64_t kNoSequence = ~std::uint64_t{0};
constexpr std::uint64_t kNoTag = ~std::uint64_t{0};

// The meaning of `partner`, a rank in the group.
enum class Role : std::uint8_t {
  kNone = 0,
  kRoot = 1,
  kSend = 2,  // to the partner
  kRecv = 3,  // from the partner
};
constexpr bool is_pair(Role role) noexcept { return role == Role::kSend || role == Role::kRecv; }

// Which side of an operation its message is; the other side is larger or smaller. The message is
// the side that every rank has: ranks can be compared by it.
enum class Side : std::uint8_t {
  kBoth = 0,    // in place
  kInput = 1,   // all_gather, gather, ...
  kOutput = 2,  // scatter, recv
};

struct CollectiveSlot {
  Word commit;  // in the ring: claim number + 1; in Open: `number`, 0 if free
  Word tsc;
  Word number;    // counts this process's collectives; joins begin, end and open slot
  Word sequence;  // number among the group's collectives; for send and recv among its messages
                  // from the sender to the receiver; all ones: unknown (yet)
  Word bytes;     // of the message
  Word names;     // group id 16 | operation id 16 | partner 32: a rank in the group, or kNoRank
  Word who;       // native thread id 32 | data type 16 | Side 4 | Role 4 | Phase 8
  Word other;     // bytes of the other side; of send and recv the tag
};
static_assert(sizeof(CollectiveSlot) == 64);
// A slot of the region Timed has instead of `tsc` the nanoseconds that the call took on its device,
// and instead of `number` the wall clock, in nanoseconds, when it was issued.
constexpr std::uint32_t kLastNameId = 0xFFFF;  // of groups and operations in `names`

// ---- groups: slot i is of the group with id i + 1. Only collectives count, not send and recv.
struct GroupSlot {
  Word begun;   // number of collectives begun
  Word issued;  // highest sequence number; 0: none yet
  Word ended;   // highest sequence number that has ended; 0: none yet
  Word last;    // ticks of the last begin
};
static_assert(sizeof(GroupSlot) == 32);

// ---- what slots hold
// A process group as the recorder sees it. The views must live only during the call.
struct GroupFacts {
  std::string_view name = {};
  std::string_view backend = {};
  std::string_view text = {};                 // its description
  std::span<const std::uint64_t> ranks = {};  // global, in group order; empty: see is_whole_job
  std::uint32_t size = 0;                     // number of ranks; 0: unknown
  std::uint32_t own = kNoRank;
  bool is_whole_job = false;  // it has the global ranks 0 to size - 1
};

// A collective as recorder and reader see it. A broken file may hold any role and side.
struct CollectiveFacts {
  std::uint32_t group = 0;  // dictionary ids of group and operation
  std::uint32_t operation = 0;
  std::uint64_t sequence = kNoSequence;
  std::uint64_t bytes = 0;          // of the message
  std::uint16_t type = kNoType;     // torch's ScalarType
  std::uint32_t tid = 0;            // of the thread that issued it
  std::uint64_t other = 0;          // see CollectiveSlot
  std::uint32_t partner = kNoRank;  // a rank in the group
  Role role = Role::kNone;
  Side side = Side::kBoth;
};

// Fills in all but `commit`.
inline void pack(CollectiveSlot& slot, const CollectiveFacts& facts, std::uint64_t number,
                 Phase phase, std::uint64_t tsc) noexcept {
  const auto set = [](Word& word, std::uint64_t value) {
    word.store(value, std::memory_order_relaxed);
  };
  set(slot.tsc, tsc);
  set(slot.number, number);
  set(slot.sequence, facts.sequence);
  set(slot.bytes, facts.bytes);
  set(slot.names, std::uint64_t{facts.group & kLastNameId} << 48 |
                      std::uint64_t{facts.operation & kLastNameId} << 32 | facts.partner);
  set(slot.who, std::uint64_t{facts.tid} << 32 | std::uint64_t{facts.type} << 16 |
                    static_cast<std::uint64_t>(facts.side) << 12 |
                    static_cast<std::uint64_t>(facts.role) << 8 |
                    static_cast<std::uint64_t>(phase));
  set(slot.other, facts.other);
}

inline Phase phase_of(const CollectiveSlot& slot) noexcept {
  return static_cast<Phase>(slot.who.load(std::memory_order_relaxed) & 0xFF);
}

inline CollectiveFacts unpack(const CollectiveSlot& slot) noexcept {
  const std::uint64_t names = slot.names.load(std::memory_order_relaxed);
  const std::uint64_t who = slot.who.load(std::memory_order_relaxed);
  return {.group = static_cast<std::uint32_t>(names >> 48),
          .operation = static_cast<std::uint32_t>(names >> 32) & kLastNameId,
          .sequence = slot.sequence.load(std::memory_order_relaxed),
          .bytes = slot.bytes.load(std::memory_order_relaxed),
          .type = static_cast<std::uint16_t>(who >> 16),
          .tid = static_cast<std::uint32_t>(who >> 32),
          .other = slot.other.load(std::memory_order_relaxed),
          .partner = static_cast<std::uint32_t>(names),
          .role = static_cast<Role>(who >> 8 & 0xF),
          .side = static_cast<Side>(who >> 12 & 0xF)};
}

// Fills in all but `commit`. `text` is cut.
inline void pack(MarkSlot& slot, MarkKind kind, std::uint64_t value, std::string_view text,
                 std::uint32_t tid, std::uint64_t tsc) noexcept {
  std::uint64_t words[4] = {};
  const std::size_t size = text.size() < sizeof words ? text.size() : sizeof words;
  text.copy(reinterpret_cast<char*>(words), size);
  slot.tsc.store(tsc, std::memory_order_relaxed);
  slot.value.store(value, std::memory_order_relaxed);
  slot.who.store(std::uint64_t{tid} << 32 | size << 16 | static_cast<std::uint64_t>(kind),
                 std::memory_order_relaxed);
  for (int i = 0; i < 4; ++i) slot.text[i].store(words[i], std::memory_order_relaxed);
}

// ---- the clock of events: the processor's counter, the cheapest. Clock pairs convert it to time.
// Returns ticks at a constant rate, equal on all cores; nanoseconds on other processors.
inline std::uint64_t read_tsc() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
#endif
}

// Returns a fixed field up to its first zero byte.
template <std::size_t kSize>
std::string_view text_of(const char (&field)[kSize]) noexcept {
  return {field, ::strnlen(field, kSize)};
}

// Returns the bytes of a plain struct.
std::string_view bytes_of(const auto& value) noexcept {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// ---- stores to plain fields that readers copy meanwhile: whole words, so that none is torn.
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

// ---- sizes and regions of a file, and its checks (format.cpp)
constexpr std::size_t kRankBytes = 4 << 20;
constexpr std::size_t kChildBytes = 256 << 10;
constexpr std::size_t kFewestBytes = 128 << 10;
// Bounds the memory that a hostile file can make a reader take.
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;

// Fills in size and regions of a header for a file of `bytes`, clamped to
// kFewestBytes..kLargestFile and rounded down to a page.
//
// The dictionary gets 1/4, marks and collectives 1/32 each, and rings the rest after threads,
// groups and open collectives. A rank's 4 MiB: 256 threads with 256 frames each, 64 open
// collectives, 256 groups, 2,048 marks, 2,048 collectives, 256 timed ones, 35 blocks of 4,096
// events.
void share_out(Header& header, std::size_t bytes) noexcept;

// Number of frames that fit into a thread slot.
std::uint32_t stack_room_of(const Header& header) noexcept;
// Blocks in the ring of a file's first thread (a power of two); every later thread gets one.
std::uint32_t first_ring_blocks(const Header& header) noexcept;

// Returns why a file of `on_disk` bytes is no record that a reader can take, by a copy of its first
// page or of what there is of it; "" if it is one.
std::string fault_of(const Header& header, std::uint64_t on_disk);

// CRC-32 (IEEE 802.3, as in zlib). `begin` is the CRC of the preceding bytes.
std::uint32_t crc32(const void* data, std::size_t size, std::uint32_t begin = 0) noexcept;

}  // namespace oddrank::trace
