// A process's recorder: owns the mapping of its record file and gives each thread its writer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/fd.hpp"
#include "trace/format/format.hpp"
#include "trace/write/dictionary_writer.hpp"
#include "trace/write/rings.hpp"

namespace oddrank::trace {

struct CollectiveCall;

struct CollectiveSink;

// Made once per process and leaked on purpose, with its mapping: threads may write until the end.
// A forked child must not touch its parent's recorder; it makes its own.
class Recorder {
 public:
  // `file` must be empty, with `bytes` reserved on disk (see make_record_file()). Throws
  // SystemError if it cannot be mapped. Finds out pids, start and boot of the process itself.
  Recorder(const Fd& file, std::size_t bytes, const Process& process);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();

  // Returns the calling thread's writer; nullptr if all slots are taken (counted). The first thread
  // gets the large ring; later ones get one block, or only a stack if no block is left.
  ThreadRecorder* add_thread(std::uint64_t python_id, std::uint32_t tid, std::string_view name);
  // Sets the name of a thread that had none when it began.
  void name_thread(ThreadRecorder& thread, std::string_view name) noexcept;
  // Destroys the writer of a thread that ends. Its slot stays readable until another thread needs
  // it.
  void end_thread(ThreadRecorder& thread) noexcept;

  DictionaryWriter& dictionary() noexcept { return dictionary_; }
  MarkRing& marks() noexcept { return marks_; }
  CollectiveRing& collectives() noexcept { return collectives_; }

  // oddrank.step(i).
  void step(std::uint64_t number, std::uint32_t tid) noexcept {
    header_->step.store(number + 1, std::memory_order_relaxed);
    marks_.add(MarkKind::kStep, number, {}, tid);
  }
  void set_hook_state(HookState state, std::string_view displaced_by = {}) noexcept;
  // Notes that the script has ended, by an exception of this type or (empty) none. A later call
  // without one keeps the earlier exception.
  void note_script_ended(std::string_view raised, std::string_view message,
                         std::string_view at) noexcept;
  // Notes the first exception that ended a thread before the script has ended.
  void note_thread_raised(std::string_view raised, std::string_view message,
                          std::string_view at) noexcept;
  // Notes that exit(code) was called.
  void note_exit(int code) noexcept;
  // Notes that collectives are recorded from now on: one that is not in the file was not issued.
  void note_collectives() noexcept;
  // Notes how long a call of another thread or moment took on its device. Times: nanoseconds.
  void note_timed(const CollectiveCall& call, std::uint64_t sequence, std::uint64_t begin,
                  std::uint64_t time) noexcept;
  // Notes since when the GIL is wanted for a sample; 0: it is not.
  void note_gil_wanted(std::uint64_t tsc) noexcept {
    header_->gil_wanted.store(tsc, std::memory_order_relaxed);
  }
  // Writes a new ClockPair. Returns at once if another thread is doing it.
  void refresh_clock() noexcept;
  // Called by a thread at least after every half of its ring, so that events can be read before
  // they are overwritten. may_wait is false if the call must not block. Set and called with the
  // GIL.
  using Listener = void (*)(bool may_wait) noexcept;
  static inline Listener listener = nullptr;
  const Header& header() const noexcept { return *header_; }
  // The whole file; valid as long as the process lives.
  std::span<const unsigned char> memory() const noexcept {
    return {reinterpret_cast<const unsigned char*>(map_), header_->size};
  }

 private:
  Event* take_blocks(std::uint32_t blocks) noexcept;
  void note_raised(std::string_view raised, std::string_view message, std::string_view at) noexcept;

  char* map_;
  Header* header_;
  DictionaryWriter dictionary_;
  MarkRing marks_;
  CollectiveRing collectives_;
  std::atomic<std::uint32_t> clock_turn_{0};
  std::atomic<bool> clock_busy_{false};
  std::mutex mutex_;  // guards all below
  std::uint32_t next_slot_ = 0;
  std::vector<ThreadSlot*> ended_;
  std::vector<std::unique_ptr<ThreadRecorder>> pens_;  // of live threads
};

// Returns the sink that writes into this process's record file; for _core. `current` returns the
// recorder to use, or nullptr: not armed, stopped, or in a child just after fork. It is called from
// any thread; its recorders must never be destroyed.
const CollectiveSink& recording_sink(Recorder* (*current)() noexcept) noexcept;

}  // namespace oddrank::trace
