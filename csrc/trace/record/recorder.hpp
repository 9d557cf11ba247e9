// A process's recorder: owns the mapping of its record file and hands out pens to threads.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "trace/record/dictionary.hpp"
#include "trace/record/format.hpp"
#include "trace/record/marks.hpp"
#include "trace/record/thread_recorder.hpp"

namespace oddrank::trace {

// What the header says of the process.
struct ProcessFacts {
  std::int32_t rank = 0, local_rank = 0, world = 1, node = 0;
  std::uint32_t python = 0;  // PY_VERSION_HEX
  bool is_child = false;
  std::string host;
  std::string job;
  std::string hook;
  std::string arguments;
};

// Never destroyed while a thread may still write: it is made once and leaked on purpose, as is the
// mapping. After fork the child must not touch the parent's and makes its own.
class Recorder {
 public:
  // Takes an open, empty file of `bytes` that has its room on the disk already (place.hpp makes
  // it). Throws SystemError where it cannot be mapped.
  Recorder(const Fd& file, std::size_t bytes, const ProcessFacts& facts);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();

  // A pen for the calling thread, or nullptr where all slots are taken (counted). The first one has
  // the large ring; each later one a block, or its stack alone.
  ThreadRecorder* add_thread(std::uint64_t python_id, std::uint32_t tid, std::string_view name);
  // Its name, where it was not known when the thread began.
  void name_thread(ThreadRecorder& thread, std::string_view name) noexcept;
  // The thread has ended and its pen with it: its slot stays readable until another thread needs
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
  // Another one than before: armed anew.
  void set_hook(std::string_view name) noexcept { set_text(header_->hook, name); }
  void set_hook_state(HookState state, std::string_view displaced_by = {}) noexcept;
  // The script has ended, by this exception or (empty) by none. Called again it takes none back.
  void note_script_ended(std::string_view raised) noexcept;
  // exit(code) was called.
  void note_exit(int code) noexcept;
  // Notes (counter, monotonic, wall clock) once more; cheap to lose a race for.
  void refresh_clock() noexcept;
  // Called by a thread whenever it has written half of its ring anew, so that somebody can read all
  // before it is overwritten; and with false where it must not wait. Set and called with the GIL.
  using Listener = void (*)(bool may_wait) noexcept;
  static inline Listener listener = nullptr;
  const Header& header() const noexcept { return *header_; }
  // The whole file, as long as the process lives.
  std::span<const unsigned char> memory() const noexcept {
    return {reinterpret_cast<const unsigned char*>(map_), header_->size};
  }

 private:
  Event* take_blocks(std::uint32_t blocks) noexcept;

  char* map_;
  Header* header_;
  DictionaryWriter dictionary_;
  MarkRing marks_;
  CollectiveRing collectives_;
  std::atomic<std::uint32_t> clock_turn_{0};
  std::atomic<bool> clock_busy_{false};
  std::mutex mutex_;  // guards what follows
  std::uint32_t next_slot_ = 0;
  std::vector<ThreadSlot*> ended_;
  std::vector<std::unique_ptr<ThreadRecorder>> pens_;  // of the threads that live
};

}  // namespace oddrank::trace
