// What runs in one thread: a list of its frames, and the thread's pen, whose shadow stack says the
// same to readers of the file.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/hooks/code_ids.hpp"
#include "trace/hooks/cpython.hpp"
#include "trace/record/recorder.hpp"

namespace oddrank::trace {

// One frame that runs in a thread; under a sparse hook only if it is recorded.
struct Running {
  cpython::Frame frame = nullptr;
  CodeInfo info;
};

// A thread's own state. Only its thread touches it.
class TracedThread {
 public:
  ~TracedThread();

  // The frame on top of this thread's list, which must be the one that runs.
  const Running& top() const noexcept { return running_.back(); }
  bool stands_on(cpython::Frame frame) const noexcept {
    return !running_.empty() && running_.back().frame == frame;
  }
  bool empty() const noexcept { return running_.empty(); }

  // A frame begins (or goes on) on top of its caller; returns what it is.
  CodeInfo enter(cpython::Frame frame, Kind kind) noexcept;
  // The frame on top ends (or stands still); returns what its caller is.
  CodeInfo leave(cpython::Frame frame, Kind kind) noexcept;
  // The frame on top comes to a place: a line or an offset. Inline: it is what happens most.
  void move(cpython::Frame frame, std::uint32_t position, std::uint8_t kind) noexcept {
    if (!stands_on(frame)) [[unlikely]]
      resynchronise(frame);
    if (running_.empty() || pen_ == nullptr) [[unlikely]]
      return;
    const CodeInfo info = running_.back().info;
    if (info.level != Level::kLines) return;
    const Place place = Place::of(info.id, position, kind);
    pen_->move(place);
    pen_->append(place);
  }

  // Builds list and shadow stack anew, up to and with `innermost`.
  void resynchronise(cpython::Frame innermost) noexcept;
  // throw() resumes a frame, and maybe others that it waits for without an event of theirs.
  void enter_by_throw(cpython::Frame frame) noexcept;
  // Whether list and shadow stack are those of the frames from `innermost` outwards: for tests.
  bool is_true_of(cpython::Frame innermost) const noexcept;

 private:
  friend class Tracer;
  // Under a sparse hook: whether the nearest caller that is recorded is the one on top. It is not
  // where frames have ended without an event (generators hand throw() on to those they wait for) or
  // a greenlet has been switched to.
  bool reaches_top(cpython::Frame caller) const noexcept;
  void push(cpython::Frame frame, CodeInfo info, Kind kind) noexcept;
  void find_name() noexcept;

  ThreadRecorder* pen_ = nullptr;
  Recorder* owner_ = nullptr;  // of pen_
  // Of the tracer, when this thread was made ready; never, to begin with: 0 is "not recording".
  std::uint64_t generation_ = ~std::uint64_t{0};
  // How many calls are left to look for the thread's name: threading registers it a little late.
  unsigned nameless_ = 0;
  bool doubtful_ = false;  // frames may run that the list does not know
  std::vector<Running> running_;
};

}  // namespace oddrank::trace
