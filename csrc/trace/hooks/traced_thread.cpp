// Keeps the list of running frames and the shadow stack, and resynchronises them.
#include <algorithm>

#include "os/cpython.hpp"
#include "trace/cpython/code.hpp"
#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

// Most callers that reaches_top() walks: CPython's default recursion limit. It walks them at every
// call from code that is not recorded.
constexpr int kFurthest = 1000;

}  // namespace

TracedThread::~TracedThread() {
  Tracer::get().remove(*this);
  // In a forked child the slot is the parent's: leave it.
  if (pen_ != nullptr && owner_ == Tracer::get().made_) owner_->end_thread(*pen_);
}

void TracedThread::find_name() noexcept {
  --nameless_;
  const KeepError keep;
  const std::string name = thread_name(PyThreadState_Get());
  if (name.empty()) return;
  nameless_ = 0;
  owner_->name_thread(*pen_, name);
}

void TracedThread::push(cpython::Frame frame, CodeInfo info, Kind kind) noexcept {
  try {
    running_.push_back({frame, info});
  } catch (const std::exception&) {
    return;  // out of memory: the next event does not match, and resynchronise() runs
  }
  if (info.level == Level::kOff || pen_ == nullptr) return;
  const bool has_line = info.level == Level::kLines && !lines_lost_;
  const std::uint32_t position = has_line ? cpython::offset_of(frame) : kNoPosition;
  const auto code = static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | kIsOffset);
  pen_->enter(Place::of(info.id, position, code));
}

CodeInfo TracedThread::enter(cpython::Frame frame, Kind kind) noexcept {
  const cpython::Frame caller = cpython::caller_of(frame);
  if (kSparse) {
    if (!stands_on(caller) && !reaches_top(caller)) resynchronise(caller);
  } else if (caller != nullptr ? !stands_on(caller) : !running_.empty()) {
    resynchronise(caller);
  }
  if (shows_more_) [[unlikely]]
    rebuild(caller);
  const CodeInfo info = Tracer::get().info_of(frame);
  Tracer::get().budget().count_call(info.id);
  push(frame, info, kind);
  if (nameless_ != 0) [[unlikely]]
    find_name();
  if (info.level >= Level::kCalls && pen_ != nullptr) {
    pen_->append(Place::of(info.id, kNoPosition, static_cast<std::uint8_t>(kind)));
  }
  return info;
}

bool TracedThread::reaches_top(cpython::Frame caller) const noexcept {
  if (doubtful_) return false;
  int left = kFurthest;
  if (running_.empty()) {
    for (cpython::Frame at = caller; at != nullptr && left > 0;
         at = cpython::caller_of(at), --left) {
      if (Tracer::get().info_of(at).level != Level::kOff) return false;
    }
    return true;
  }
  const cpython::Frame top = running_.back().frame;
  for (cpython::Frame at = caller; at != nullptr && at != top; at = at->previous) {
    if (--left == 0) return true;
    if (at->previous == nullptr) return false;
    // 3.14 links the frame of a generator that delegates throw(), but sends no event for it.
    if (cpython::is_generators(at) && Tracer::get().info_of(at).level != Level::kOff) return false;
  }
  return caller != nullptr;
}

CodeInfo TracedThread::leave(cpython::Frame frame, Kind kind) noexcept {
  if (!stands_on(frame) || shows_more_) catch_up(frame);
  if (running_.empty()) return {};
  const CodeInfo info = running_.back().info;
  Tracer::get().budget().count_call(info.id);
  if (info.level >= Level::kCalls && pen_ != nullptr) {
    pen_->append(Place::of(info.id, kNoPosition, static_cast<std::uint8_t>(kind)));
  }
  if (info.level != Level::kOff && pen_ != nullptr) pen_->leave();
  running_.pop_back();
  return running_.empty() ? CodeInfo{} : running_.back().info;
}

void TracedThread::enter_by_throw(cpython::Frame frame) noexcept {
  resynchronise(frame);
  if (running_.empty() || running_.back().frame != frame || pen_ == nullptr) return;
  const CodeInfo info = running_.back().info;
  if (info.level < Level::kCalls) return;
  pen_->append(Place::of(info.id, kNoPosition, static_cast<std::uint8_t>(Kind::kThrow)));
}

void TracedThread::lose_lines() noexcept {
  if (lines_lost_) return;
  lines_lost_ = true;
  shows_more_ = false;
  if (pen_ == nullptr) return;
  constexpr auto kKind =
      static_cast<std::uint8_t>(static_cast<std::uint8_t>(Kind::kLine) | kIsOffset);
  pen_->clear_stack();
  for (const Running& one : running_) {
    if (one.info.level == Level::kOff) continue;
    pen_->enter(Place::of(one.info.id, kNoPosition, kKind));
  }
}

void TracedThread::catch_up(cpython::Frame frame) noexcept {
  if (stands_on(frame) && !lines_lost_) {
    rebuild(frame);
  } else {
    resynchronise(frame);
  }
}

void TracedThread::resynchronise(cpython::Frame innermost) noexcept {
  if (pen_ != nullptr) {
    pen_->append(Place::of(0, kNoPosition, static_cast<std::uint8_t>(Kind::kGap)));
  }
  rebuild(innermost);
}

void TracedThread::sample(cpython::Frame innermost, std::uint64_t tsc) noexcept {
  if (pen_ == nullptr) return;
  const Tracer& tracer = Tracer::get();
  // A copy of info_of(): a code object that no event has shown yet is none that was lowered.
  const auto info_of = [&tracer](cpython::Frame frame) {
    const CodeInfo* known = tracer.codes_.find(cpython::code_of(frame));
    return known != nullptr ? *known : CodeInfo{};
  };
  std::vector<cpython::Frame> frames;
  bool lowered = false;
  try {
    for (cpython::Frame at = innermost; at != nullptr; at = cpython::caller_of(at)) {
      const CodeInfo info = info_of(at);
      if (info.id == 0) continue;
      frames.push_back(at);
      lowered = lowered || tracer.budget_.is_lowered(info.id);
    }
  } catch (const std::exception&) {
    return;
  }
  if (!lowered) {
    if (shows_more_) rebuild(innermost);
    return;
  }
  shows_more_ = !lists(innermost);
  pen_->note_sample(tsc);
  pen_->clear_stack();
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const CodeInfo info = info_of(*frame);
    const bool is_lowered = tracer.budget_.is_lowered(info.id);
    const bool has_line = info.level == Level::kLines || is_lowered;
    const Kind kind = info.level != Level::kLines && is_lowered ? Kind::kSampled : Kind::kLine;
    pen_->enter(Place::of(info.id, has_line ? cpython::offset_of(*frame) : kNoPosition,
                          static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | kIsOffset)));
    shows_more_ = shows_more_ || info.level == Level::kOff;
  }
}

void TracedThread::rebuild(cpython::Frame innermost) noexcept {
  doubtful_ = false;
  lines_lost_ = false;
  shows_more_ = false;
  std::vector<cpython::Frame> frames;
  try {
    for (cpython::Frame at = innermost; at != nullptr; at = cpython::caller_of(at)) {
      frames.push_back(at);
    }
  } catch (const std::exception&) {
    frames.clear();
  }
  running_.clear();
  if (pen_ != nullptr) pen_->clear_stack();
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const CodeInfo info = Tracer::get().info_of(*frame);
    if (!kSparse || info.level != Level::kOff) push(*frame, info, Kind::kLine);
  }
}

bool TracedThread::is_true_of(cpython::Frame innermost) const noexcept {
  if (!lists(innermost)) return false;
  const auto recorded = std::ranges::count_if(
      running_, [](const Running& one) { return one.info.level != Level::kOff; });
  return pen_ == nullptr || shows_more_ || pen_->depth() == static_cast<std::uint64_t>(recorded);
}

bool TracedThread::lists(cpython::Frame innermost) const noexcept {
  auto known = running_.rbegin();
  for (cpython::Frame at = innermost; at != nullptr; at = cpython::caller_of(at)) {
    const Level level = Tracer::get().info_of(at).level;
    if (kSparse && level == Level::kOff) continue;
    if (known == running_.rend() || known->frame != at || known->info.level != level) return false;
    ++known;
  }
  return known == running_.rend();
}

}  // namespace oddrank::trace
