// The watch sees every state of a process that is not its child, and how it died.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "../patience.hpp"
#include "control/guard.hpp"
#include "control/page.hpp"
#include "control/process.hpp"
#include "os/clock.hpp"

namespace oddrank::control {
namespace {

pid_t child(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    body();
    ::_exit(0);
  }
  return pid;
}

bool becomes(ProcessWatch& watch, Liveness life) {
  return patience::until([&] { return watch.look().life == life; });
}

TEST(ProcessWatch, sees_stop_continue_and_the_signal_that_kills) {
  const pid_t pid = child([] { ::pause(); });
  ProcessWatch watch(pid);
  EXPECT_EQ(watch.look().life, Liveness::kRunning);
  ::kill(pid, SIGSTOP);
  EXPECT_TRUE(becomes(watch, Liveness::kStopped));
  ::kill(pid, SIGCONT);
  EXPECT_TRUE(becomes(watch, Liveness::kRunning));
  watch.kill();
  EXPECT_TRUE(becomes(watch, Liveness::kDead));
  EXPECT_EQ(watch.last().signal, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST(ProcessWatch, reads_the_exit_code_of_a_zombie) {
  const pid_t pid = child([] { ::_exit(42); });
  ProcessWatch watch(pid);
  EXPECT_TRUE(becomes(watch, Liveness::kDead));
  EXPECT_EQ(watch.last().exit_code, 42);
  EXPECT_EQ(watch.last().signal, 0);
  ::waitpid(pid, nullptr, 0);
}

TEST(ProcessWatch, knows_a_death_that_its_parent_has_collected_before) {
  const pid_t pid = child([] {
    ::usleep(20'000);
    ::raise(SIGKILL);
  });
  ProcessWatch watch(pid);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(watch.look().life, Liveness::kDead);
  // Kernels before 6.15 no longer know the signal; a wrong one must never be reported.
  EXPECT_TRUE(watch.last().signal == SIGKILL || watch.last().signal == 0);
  EXPECT_EQ(watch.last().exit_code, -1);
}

TEST(ProcessWatch, takes_no_other_process_for_one_that_was_never_there) {
  ProcessWatch watch(0x3ffffff);
  EXPECT_EQ(watch.look().life, Liveness::kDead);
}

TEST(KillTimer, ends_a_stopped_process_too) {
  const pid_t pid = child([] {
    kill_this_process_at(monotonic_ns() + 200'000'000);
    ::raise(SIGSTOP);
  });
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
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

TEST(Fold, writes_ranks_as_ranges) {
  EXPECT_EQ(fold({}), "");
  EXPECT_EQ(fold({3}), "3");
  EXPECT_EQ(fold({7, 0, 1, 2, 5}), "0-2,5,7");
}

}  // namespace
}  // namespace oddrank::control
