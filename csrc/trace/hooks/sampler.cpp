// Runs the sampling thread. Its functions are not noexcept: if Python finalizes after all, versions
// before 3.14 end the thread inside PyGILState_Ensure() by unwinding its stack.
#include "trace/hooks/sampler.hpp"

#include <Python.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "os/clock.hpp"
#include "os/cpython.hpp"
#include "os/thread_id.hpp"
#include "trace/hooks/tracer.hpp"

namespace oddrank::trace {
namespace {

using std::chrono::nanoseconds;

constexpr nanoseconds kPause = std::chrono::milliseconds(50);
// A sample's CPU time is at most this part of the time to the next one: many threads, deep stacks.
constexpr int kLeastIdle = 200;
constexpr std::size_t kStackBytes = std::size_t{512} << 10;
constexpr int kMostYields = 10'000;

// pthread_join() returns a moment before the kernel forgets the thread.
void wait_until_gone(pid_t tid) noexcept {
  for (int i = 0; i < kMostYields && ::syscall(SYS_tgkill, ::getpid(), tid, 0) == 0; ++i) {
    ::sched_yield();
  }
}

}  // namespace

void Sampler::want(bool wanted) noexcept {
  const std::lock_guard lock(mutex_);
  if (wanted_ == wanted) return;
  wanted_ = wanted;
  if (wanted_ && !has_thread_ && pauses_ == 0) start();
  changed_.notify_all();
}

void Sampler::start() noexcept {
  // Signals are for the program's threads.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  ends_ = false;
  tid_ = 0;
  has_thread_ = ::pthread_create(&thread_, &attributes, &run, this) == 0;
  ::pthread_attr_destroy(&attributes);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Sampler::pause() noexcept {
  {
    // Other threads get no turn where there is nothing to wait for: Python may be ending.
    const std::lock_guard lock(mutex_);
    ++pauses_;
    if (!has_thread_) return;
  }
  const WithoutGil unlocked;
  std::unique_lock lock(mutex_);
  if (!has_thread_) return;
  const bool is_first = !ends_;
  ends_ = true;
  changed_.notify_all();
  if (!is_first) {
    changed_.wait(lock, [this] { return !has_thread_; });
    return;
  }
  lock.unlock();
  ::pthread_join(thread_, nullptr);
  lock.lock();
  wait_until_gone(tid_);
  has_thread_ = false;
  changed_.notify_all();
}

void Sampler::resume() noexcept {
  const std::lock_guard lock(mutex_);
  if (--pauses_ == 0 && wanted_ && !has_thread_) start();
}

void Sampler::forget() noexcept {
  // The parent's thread may have held the mutex.
  new (&mutex_) std::mutex;
  new (&changed_) std::condition_variable;
  wanted_ = has_thread_ = ends_ = false;
  pauses_ = 0;
}

void* Sampler::run(void* self) {
  static_cast<Sampler*>(self)->work();
  return nullptr;
}

void Sampler::work() {
  std::unique_lock lock(mutex_);
  tid_ = static_cast<pid_t>(thread_id());
  nanoseconds pause = kPause;
  while (true) {
    changed_.wait(lock, [this] { return wanted_ || ends_; });
    changed_.wait_for(lock, pause, [this] { return ends_; });
    if (ends_) return;
    if (!wanted_) continue;
    lock.unlock();
    pause = sample_once();
    lock.lock();
  }
}

// Returns the time until the next sample.
nanoseconds Sampler::sample_once() {
  Recorder* recorder = Tracer::made();
  if (recorder == nullptr) return kPause;
  recorder->note_gil_wanted(read_tsc());
  const PyGILState_STATE state = PyGILState_Ensure();
  recorder->note_gil_wanted(0);
  const std::int64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  Tracer::get().sample();
  const std::int64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
  PyGILState_Release(state);
  return std::max(kPause, nanoseconds(kLeastIdle * used));
}

}  // namespace oddrank::trace
