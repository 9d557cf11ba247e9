// The worker's question about the root's clock.
#include <chrono>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "control/worker.hpp"

namespace oddrank::control {

ClockAnswer Worker::sync_clock(std::int64_t deadline_ns, bool shortcut) {
  const std::int64_t time = deadline_ns - monotonic_ns();
  ClockQuestion question;
  {
    const std::lock_guard lock(mutex_);
    question.number = ++clock_question_;
    clock_answer_.reset();
  }
  // The guard answers with what it has a little earlier than this rank gives up.
  question.deadline_ns = deadline_ns - time / 10;
  question.shortcut = shortcut;
  write_frame(Kind::kAskClock, question.pack());
  std::unique_lock lock(mutex_);
  const auto answered = [&] { return clock_answer_ && clock_answer_->number == question.number; };
  heard_.wait_for(lock, std::chrono::nanoseconds(deadline_ns - monotonic_ns()),
                  [&] { return end_ || lost_ || answered(); });
  if (answered() && clock_answer_->trouble.empty()) return *clock_answer_;
  std::string why = "no answer from this rank's guard (pid " + std::to_string(guard_) +
                    ") in time: was it stopped?";
  if (answered()) why = clock_answer_->trouble;
  if (lost_) why = "this rank's guard (pid " + std::to_string(guard_) + ") has ended";
  if (end_) why = "the run has ended";
  throw Error("cannot compare this rank's clock with the root's: " + why);
}

}  // namespace oddrank::control
