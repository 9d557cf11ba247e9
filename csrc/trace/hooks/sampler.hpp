// The thread that samples: while code runs too often to be recorded as closely as asked for, it
// takes the GIL 20 times a second and has the stacks of all threads read.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace oddrank::trace {

// Call all functions with the GIL, but forget().
class Sampler {
 public:
  // Samples from now on, or no longer. Without room for a thread it samples nothing.
  void want(bool wanted) noexcept;
  // Ends the thread and waits until it is gone, without the GIL: before fork(), else Python warns
  // of threads, and before Python finalizes, when no other thread may ask for the GIL.
  void pause() noexcept;
  // Allows want() to start a thread again, and starts it if it samples now.
  void resume() noexcept;
  // In a forked child, which has no such thread.
  void forget() noexcept;

 private:
  static void* run(void* self);
  void work();
  std::chrono::nanoseconds sample_once();
  void start() noexcept;

  std::mutex mutex_;  // guards all; never held while waiting for the GIL
  std::condition_variable changed_;
  bool wanted_ = false;
  bool has_thread_ = false;
  bool ends_ = false;
  int pauses_ = 0;  // pause() calls without their resume()
  pthread_t thread_{};
  pid_t tid_ = 0;
};

}  // namespace oddrank::trace
