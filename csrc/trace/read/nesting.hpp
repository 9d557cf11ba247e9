// Rebuilds a thread's nested calls from a ring whose beginning is lost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
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
//
// "(e" begins a call of e, "e)" ends it:
//
//   segment   |- 0 -----------------|      |- 1 -------|
//   events         c)   (e     e)     gap     d)   (f
//   stack     a d c  a d  a d e  a d      a d    a    a f   <- shadow stack at the end
//
// connect() walks back from "a f": f begins in 1. d ends in 1 and does not begin there: it was open
// before. So was c, which ends in 0. a has no event: it ran all the time.
class Nesting {
 public:
  // `stack`: code ids of the calls at the end, outermost first; only code that records events.
  Nesting(std::vector<Moment> events, std::vector<std::uint32_t> stack)
      : events_(std::move(events)) {
    std::vector<std::uint32_t> open;
    std::size_t at = 0;
    do {
      Segment segment;
      segment.begin = at;
      const std::size_t known = missing_.size();
      open.clear();
      at = take_in(at, segment, open);
      segment.missing = missing_.size() - known;
      segments_.push_back(segment);
    } while (at < events_.size());
    connect(std::move(stack), open);
  }

  // Visits the next `most` events. Returns false after the last one, with whose ticks it then
  // closes all open calls.
  bool visit(CallVisitor& visitor, std::size_t most) {
    for (; next_ < events_.size() && most > 0; ++next_, --most) {
      const Moment& moment = events_[next_];
      tsc_ = std::max(tsc_, moment.tsc);
      if (segment_ < segments_.size() && segments_[segment_].begin == next_) enter_segment(visitor);
      const Kind kind = moment.place.kind();
      if (begins(kind)) {
        open(visitor, moment.place.code(), Why::kEvent);
      } else if (ends(kind)) {
        close(visitor, kind == Kind::kUnwind ? Why::kUnwind : Why::kEvent);
      } else if (kind == Kind::kLine) {
        visitor.line(tsc_, moment.place);
      } else if (kind == Kind::kLevel) {
        visitor.level(tsc_, moment.place);
      }
    }
    if (next_ < events_.size()) return true;
    while (!running_.empty()) close(visitor, Why::kEnd);
    return false;
  }

 private:
  using Why = CallVisitor::Why;

  // Greatest depth at which to search a segment's outermost call in the next segment's stack.
  static constexpr std::size_t kFarthest = 256;

  static bool begins(Kind kind) noexcept {
    return kind == Kind::kCall || kind == Kind::kResume || kind == Kind::kThrow;
  }
  static bool ends(Kind kind) noexcept {
    return kind == Kind::kReturn || kind == Kind::kYield || kind == Kind::kUnwind;
  }

  static constexpr std::size_t kNowhere = ~std::size_t{0};
  static constexpr std::uint32_t kNone = 0;  // no code has this id

  // Returns the index at which `open`, the calls known at the end, begin in the final stack. The
  // stack may have up to two more calls: a process may die between its two writes, event and stack.
  static std::size_t place_in(const std::vector<std::uint32_t>& stack,
                              const std::vector<std::uint32_t>& open) {
    for (std::size_t more = 0; more <= 2 && open.size() + more <= stack.size(); ++more) {
      const std::size_t at = stack.size() - open.size() - more;
      if (std::equal(open.begin(), open.end(), stack.begin() + static_cast<std::ptrdiff_t>(at))) {
        return at;
      }
    }
    return kNowhere;
  }

  // Returns the index of a code in a stack that may have changed since.
  static std::size_t place_in(const std::vector<std::uint32_t>& stack, std::uint32_t code) {
    const std::size_t farthest = std::min(stack.size(), kFarthest);
    for (std::size_t at = 0; code != kNone && at < farthest; ++at) {
      if (stack[at] == code) return at;
    }
    return kNowhere;
  }

  struct Segment {
    std::size_t begin = 0;    // its first event
    std::size_t missing = 0;  // calls that began before it, by its events
    std::uint32_t outer = 0;  // outermost of its codes still running at its end; 0: none
    std::size_t kept = 0;     // outer calls, still open when the next segment begins
    std::size_t opened = 0;   // calls opened after its end, on top of the kept ones
  };
  // Reads one segment. Returns the first event of the next one, or the number of events.
  std::size_t take_in(std::size_t from, Segment& segment, std::vector<std::uint32_t>& open) {
    std::size_t at = from;
    // Adjacent gaps count as one.
    while (at < events_.size() && events_[at].place.kind() == Kind::kGap) ++at;
    for (; at < events_.size(); ++at) {
      const Place place = events_[at].place;
      const Kind kind = place.kind();
      if (kind == Kind::kGap) break;
      if (begins(kind)) {
        open.push_back(place.code());
      } else if (ends(kind) || kind == Kind::kLine) {
        if (open.empty()) {
          missing_.push_back(place.code());
          open.push_back(place.code());
        }
        if (open.back() != place.code()) break;
        if (ends(kind)) open.pop_back();
      }
    }
    segment.outer = open.empty() ? kNone : open.front();
    return at;
  }
  // Walks segments backwards: `stack` is the state at the end, then at each segment's start.
  void connect(std::vector<std::uint32_t> stack, const std::vector<std::uint32_t>& open_at_end) {
    std::size_t around = 0;  // calls without an event in the next segment
    std::size_t missing = missing_.size();
    for (std::size_t i = segments_.size(); i-- > 0;) {
      Segment& segment = segments_[i];
      const bool is_last = i + 1 == segments_.size();
      std::size_t kept = is_last ? place_in(stack, open_at_end) : kNowhere;
      // All calls of this segment have ended: the next segment's calls ran around them.
      if (kept == kNowhere && segment.outer == kNone) kept = stack.size();
      if (kept == kNowhere) kept = place_in(stack, segment.outer);
      segment.kept = kept == kNowhere ? around : kept;
      while (stack.size() > segment.kept) {
        // Don't open calls after the last segment: their start is unknown.
        if (!is_last) {
          opened_.push_back(stack.back());
          ++segment.opened;
        }
        stack.pop_back();
      }
      around = stack.size();
      for (std::size_t n = 0; n < segment.missing; ++n) stack.push_back(missing_[--missing]);
    }
    stack_ = std::move(stack);
  }
  void enter_segment(CallVisitor& visitor) {
    if (segment_ == 0) {
      for (const std::uint32_t code : stack_) open(visitor, code, Why::kCut);
    } else {
      visitor.gap(tsc_);
      const Segment& before = segments_[segment_ - 1];
      std::size_t opened = before.opened;
      std::size_t same = before.kept;
      for (; opened > 0 && same < running_.size() && running_[same] == opened_.back(); --opened) {
        opened_.pop_back();
        ++same;
      }
      while (running_.size() > same) close(visitor, Why::kGap);
      // If a segment shows nothing of its outer calls, the remaining ones may have begun after it.
      Segment& entered = segments_[segment_];
      if (entered.missing == 0 && entered.outer == kNone && segment_ + 1 < segments_.size()) {
        entered.opened += opened;
        entered.kept = same;
        opened = 0;
      }
      for (; opened > 0; --opened) {
        open(visitor, opened_.back(), Why::kCut);
        opened_.pop_back();
      }
    }
    ++segment_;
  }
  void open(CallVisitor& visitor, std::uint32_t code, Why why) {
    visitor.open(tsc_, code, running_.size(), why);
    running_.push_back(code);
  }
  void close(CallVisitor& visitor, Why why) {
    if (running_.empty()) return;
    const std::uint32_t code = running_.back();
    running_.pop_back();
    visitor.close(tsc_, code, running_.size(), why);
  }

  std::vector<Moment> events_;
  std::vector<std::uint32_t> stack_;  // at the start of the first segment
  std::vector<Segment> segments_;
  // Missing calls of all segments, first to last, each innermost first.
  std::vector<std::uint32_t> missing_;
  // Calls opened after the end of each segment: last segment first, each innermost first. Taken
  // from the back.
  std::vector<std::uint32_t> opened_;
  std::vector<std::uint32_t> running_;
  std::size_t next_ = 0;     // next event to take
  std::size_t segment_ = 0;  // next segment to enter
  std::uint64_t tsc_ = 0;
};

// Returns the code ids in a thread's stack that record events (level `calls` or higher). Empty if
// the stack changed while it was read.
inline std::vector<std::uint32_t> recorded_calls(const Thread& thread, const Dictionary& names) {
  std::vector<std::uint32_t> calls;
  if (thread.torn) return calls;
  for (const Place place : thread.stack) {
    const Code* code = names.code(place.code());
    if (code != nullptr && code->level_now() >= static_cast<std::uint32_t>(Level::kCalls))
      calls.push_back(place.code());
  }
  return calls;
}

}  // namespace oddrank::trace
