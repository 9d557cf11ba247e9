// One traced thread: the list of its frames, and the writer that shows them to readers.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/cpython/frames.hpp"
#include "trace/hooks/filter.hpp"
#include "trace/write/recorder.hpp"

namespace oddrank::trace {

// A running frame. Under a sparse hook only recorded frames are listed.
struct Running {
  cpython::Frame frame = nullptr;
  CodeInfo info;
};

// A thread's state. Only its thread uses it.
class TracedThread {
 public:
  ~TracedThread();

  // The innermost listed frame. The list must not be empty.
  const Running& top() const noexcept { return running_.back(); }
  bool stands_on(cpython::Frame frame) const noexcept {
    return !running_.empty() && running_.back().frame == frame;
  }
  bool empty() const noexcept { return running_.empty(); }

  // Pushes a frame that begins or resumes. Returns its CodeInfo.
  CodeInfo enter(cpython::Frame frame, Kind kind) noexcept;
  // Pops a frame that ends or is suspended. Returns its caller's CodeInfo.
  CodeInfo leave(cpython::Frame frame, Kind kind) noexcept;
  // Moves the top frame to a position: a line or an offset. Inline: the most frequent event.
  void move(cpython::Frame frame, std::uint32_t position, std::uint8_t kind) noexcept {
    if (!stands_on(frame) || lines_lost_) [[unlikely]]
      resynchronise(frame);
    if (running_.empty() || pen_ == nullptr) [[unlikely]]
      return;
    const CodeInfo info = running_.back().info;
    if (info.level != Level::kLines) return;
    const Place place = Place::of(info.id, position, kind);
    pen_->move(place);
    pen_->append(place);
  }

  // Rebuilds list and shadow stack from the frames up to and including `innermost`.
  void resynchronise(cpython::Frame innermost) noexcept;
  // Another tool takes this thread's line events: removes the positions from the shadow stack until
  // resynchronise() restores them.
  void lose_lines() noexcept;
  bool lines_lost() const noexcept { return lines_lost_; }
  // throw() resumes a frame, and possibly frames that it awaits, which send no event.
  void enter_by_throw(cpython::Frame frame) noexcept;
  // For tests: whether list and shadow stack match the frames from `innermost` outwards.
  bool is_true_of(cpython::Frame innermost) const noexcept;

 private:
  friend class Tracer;
  // For a sparse hook: whether the nearest recorded caller is the top of the list. False if frames
  // ended without an event (delegated throw()) or a greenlet was switched to.
  bool reaches_top(cpython::Frame caller) const noexcept;
  void push(cpython::Frame frame, CodeInfo info, Kind kind) noexcept;
  void find_name() noexcept;

  ThreadRecorder* pen_ = nullptr;
  Recorder* owner_ = nullptr;  // of pen_
  // Tracer generation at the last prepare(). Starts at a value that no tracer has, not even 0.
  std::uint64_t generation_ = ~std::uint64_t{0};
  // Calls left in which to look for the thread's name: threading registers it a little late.
  unsigned nameless_ = 0;
  bool lines_lost_ = false;
  bool doubtful_ = false;  // frames may run that are not in the list
  std::vector<Running> running_;
};

}  // namespace oddrank::trace
