// The watch sees every state of a process that is not its child, and how it died.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../patience.hpp"
#include "control/page.hpp"
#include "control/process.hpp"
#include "os/clock.hpp"
#include "os/encoding.hpp"

namespace oddrank::control {
namespace {

// A child that runs `body`; reaped at the end at the latest.
struct Child {
  explicit Child(void (*body)()) : pid(::fork()) {
    if (pid == 0) body(), ::_exit(0);
  }
  ~Child() { reap(); }
  void reap() { ::waitpid(pid, &status, 0); }
  bool becomes(Liveness life) {
    return patience::until([&] { return watch.look().life == life; });
  }

  const pid_t pid;
  ProcessWatch watch{pid};
  int status = -1;
};

TEST(ProcessWatch, sees_stop_continue_and_the_signal_that_kills) {
  Child child([] { ::pause(); });
  EXPECT_EQ(child.watch.look().life, Liveness::kRunning);
  ::kill(child.pid, SIGSTOP);
  EXPECT_TRUE(child.becomes(Liveness::kStopped));
  ::kill(child.pid, SIGCONT);
  EXPECT_TRUE(child.becomes(Liveness::kRunning));
  child.watch.kill();
  EXPECT_TRUE(child.becomes(Liveness::kDead));
  EXPECT_EQ(child.watch.last().signal, SIGKILL);
}

TEST(ProcessWatch, reads_the_exit_code_of_a_zombie) {
  Child child([] { ::_exit(42); });
  EXPECT_TRUE(child.becomes(Liveness::kDead));
  EXPECT_EQ(child.watch.last().exit_code, 42);
  EXPECT_EQ(child.watch.last().signal, 0);
}

TEST(ProcessWatch, knows_a_death_that_its_parent_has_collected_before) {
  Child child([] { ::usleep(20'000), ::raise(SIGKILL); });
  child.reap();
  EXPECT_EQ(child.watch.look().life, Liveness::kDead);
  // Kernels before 6.15 no longer know the signal; a wrong one must never be reported.
  EXPECT_TRUE(child.watch.last().signal == SIGKILL || child.watch.last().signal == 0);
  EXPECT_EQ(child.watch.last().exit_code, -1);
  EXPECT_EQ(ProcessWatch(0x3ffffff).look().life, Liveness::kDead) << "it was never there";
}

TEST(KillTimer, ends_a_stopped_process_too) {
  Child child([] { kill_this_process_at(monotonic_ns() + 200'000'000), ::raise(SIGSTOP); });
  child.reap();
  EXPECT_EQ(child.status, SIGKILL) << "the status of a death by this signal";
}

TEST(Page, gives_one_consistent_mark_and_cuts_what_is_too_long) {
  Page page;
  Progress mark;
  mark.progress = 7;
  Progress::set(mark.stage, std::string(1000, 's'));
  Progress::set(mark.step, "step");
  page.write(mark);
  const Progress read = page.read();
  EXPECT_EQ(read.progress, 7U);
  EXPECT_EQ(std::string(read.stage), std::string(sizeof mark.stage - 1, 's'));
  EXPECT_STREQ(read.step, "step");
}

TEST(Folded, writes_numbers_as_ranges) {
  EXPECT_EQ(folded<int>({}), "");
  EXPECT_EQ(folded<int>({3}), "3");
  EXPECT_EQ(folded<int>({0, 1, 2, 5, 7}), "0-2,5,7");
}

}  // namespace
}  // namespace oddrank::control
