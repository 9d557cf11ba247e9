// Rebuilds a thread's nested calls from a ring whose beginning is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/read/dictionary.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {

// Receives calls in order: each is opened once and closed once, innermost first, and ticks never
// decrease. Depth 0 is the outermost call.
class CallVisitor {
 public:
  enum class Why : std::uint8_t {
    kEvent,   // the call began or ended here
    kCut,     // began earlier: opened at the start of the window or after a gap
    kGap,     // closed: events are missing from here on, and it may have ended in between
    kUnwind,  // ended by an exception
    kEnd,     // still running at the window's end
  };
  CallVisitor() = default;
  CallVisitor(const CallVisitor&) = delete;
  CallVisitor& operator=(const CallVisitor&) = delete;
  virtual ~CallVisitor() = default;
  virtual void open(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) = 0;
  virtual void close(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) = 0;
  virtual void line(std::uint64_t tsc, Place place) = 0;
  virtual void gap(std::uint64_t tsc) = 0;
  // Code is recorded at another level from here on, in all threads.
  virtual void level(std::uint64_t /*tsc*/, Place /*place*/) {}
};

// Cuts a ring into segments: at gaps, and where an event contradicts the events before it (a broken
// file). The stack at the start of a segment is not recorded; it is rebuilt from
// - calls that return or have a line in the segment but do not begin there, and
// - calls further out at the start of the next segment or, for the last one, in the shadow stack.
// Calls that may continue after a gap stay open, so that a broken ring gives no more output than a
// good one. (If a call was replaced by another one of the same code at the same depth during a gap,
// the two count as one.)
class Nesting {
 public:
  // `stack`: code ids of the calls at the end, outermost first; only code that records events.
  Nesting(std::vector<Moment> events, std::vector<std::uint32_t> stack);

  // Visits the next `most` events. Returns false after the last one, with whose ticks it then
  // closes all open calls.
  bool visit(CallVisitor& visitor, std::size_t most);

 private:
  struct Segment {
    std::size_t begin = 0;    // its first event
    std::size_t missing = 0;  // calls that began before it, by its events
    std::uint32_t outer = 0;  // outermost of its codes still running at its end; 0: none
    std::size_t kept = 0;     // outer calls, still open when the next segment begins
    std::size_t opened = 0;   // calls opened after its end, on top of the kept ones
  };
  std::size_t take_in(std::size_t from, Segment& segment, std::vector<std::uint32_t>& open);
  void connect(std::vector<std::uint32_t> stack, const std::vector<std::uint32_t>& open_at_end);
  void enter_segment(CallVisitor& visitor);
  void open(CallVisitor& visitor, std::uint32_t code, CallVisitor::Why why);
  void close(CallVisitor& visitor, CallVisitor::Why why);

  std::vector<Moment> events_;
  std::vector<std::uint32_t> stack_;  // at the start of the first segment
  std::vector<Segment> segments_;
  // Missing calls of all segments, first to last, each innermost first.
  std::vector<std::uint32_t> missing_;
  // Calls opened after the end of each segment: last segment first, each innermost first. Taken
  // from the back.
  std::vector<std::uint32_t> opened_;
  std::vector<std::uint32_t> running_;
  std::size_t next_ = 0;     // next event to visit
  std::size_t segment_ = 0;  // next segment to enter
  std::uint64_t tsc_ = 0;
};

// Returns the code ids in a thread's stack that record events (level `calls` or higher). Empty if
// the stack changed while it was read.
std::vector<std::uint32_t> recorded_calls(const Thread& thread, const Dictionary& names);

}  // namespace oddrank::trace
