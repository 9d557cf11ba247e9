// The calls of a thread, well nested, from a ring whose beginning is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/read/dictionary.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {

// Told what happened, in order. Each call is opened once and closed once, the innermost first, and
// the ticks never go back. Depth 0 is the outermost call.
class CallVisitor {
 public:
  enum class Why : std::uint8_t {
    kEvent,   // it began or ended here
    kCut,     // it had begun before: opened at the beginning of the window or behind a gap
    kGap,     // events are missing from here on, and it is not known to go on behind
    kUnwind,  // left by an exception
    kEnd,     // runs at the window's end
  };
  CallVisitor() = default;
  CallVisitor(const CallVisitor&) = delete;
  CallVisitor& operator=(const CallVisitor&) = delete;
  virtual ~CallVisitor() = default;
  virtual void open(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) = 0;
  virtual void close(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) = 0;
  virtual void line(std::uint64_t tsc, Place place) = 0;
  virtual void gap(std::uint64_t tsc) = 0;
};

// A ring is cut into segments: by its gaps, and wherever an event contradicts those before it (a
// broken file). What ran when a segment began is not recorded; it is put together from
// - what returns, or has a line, in the segment without having been called there, and
// - what was further out at the beginning of the next segment, or at the end in the shadow stack.
// Calls that go on behind a gap as far as anybody can tell stay open there, so that the text made
// of a broken ring is no longer than that of a good one. (A call that is replaced by another one of
// the same code at the same depth within a gap is taken for the same.)
class Nesting {
 public:
  // `stack`: the code ids that run at the end, outermost first, without those that leave no events.
  Nesting(std::vector<Moment> events, std::vector<std::uint32_t> stack);

  // Tells what the next `most` events say; false where there are no more, and then every call that
  // was open has been closed, with the last event's ticks.
  bool visit(CallVisitor& visitor, std::size_t most);

 private:
  struct Segment {
    std::size_t begin = 0;    // its first event
    std::size_t missing = 0;  // calls that its events show to have run before it
    std::uint32_t outer = 0;  // the outermost of its codes that run at its end; 0: none
    std::size_t kept = 0;     // calls around those, also open when the next one begins
    std::size_t opened = 0;   // behind its end, on top of the kept ones
  };
  std::size_t take_in(std::size_t from, Segment& segment, std::vector<std::uint32_t>& open);
  void connect(std::vector<std::uint32_t> stack, const std::vector<std::uint32_t>& open_at_end);
  void enter_segment(CallVisitor& visitor);
  void open(CallVisitor& visitor, std::uint32_t code, CallVisitor::Why why);
  void close(CallVisitor& visitor, CallVisitor::Why why);

  std::vector<Moment> events_;
  std::vector<std::uint32_t> stack_;  // when the first segment begins
  std::vector<Segment> segments_;
  // Of all segments, first to last, each innermost first.
  std::vector<std::uint32_t> missing_;
  // Of all segments, last to first, each innermost first: what is opened behind its end. Taken off
  // from the back.
  std::vector<std::uint32_t> opened_;
  std::vector<std::uint32_t> running_;
  std::size_t next_ = 0;     // event
  std::size_t segment_ = 0;  // to enter
  std::uint64_t tsc_ = 0;
};

// The code ids of a thread's stack that leave events: recorded at `calls` or more. None of a stack
// that was changing while it was read.
std::vector<std::uint32_t> recorded_calls(const Thread& thread, const Dictionary& names);

}  // namespace oddrank::trace
