// A process that is stopped ends at its deadline, too; one that was never there is dead; a page
// gives one mark.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/page.hpp"
#include "control/process.hpp"
#include "os/clock.hpp"
#include "os/encoding.hpp"

namespace oddrank::control {
namespace {

TEST(ProcessWatch, takes_one_that_was_never_there_for_dead) {
  EXPECT_EQ(ProcessWatch(0x3ffffff).look().life, Liveness::kDead);
}

TEST(KillTimer, ends_a_stopped_process_too) {
  const pid_t child = ::fork();
  if (child == 0) kill_this_process_at(monotonic_ns() + 200'000'000), ::raise(SIGSTOP), ::_exit(0);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, SIGKILL) << "the status of a death by this signal";
}

TEST(Page, gives_one_consistent_mark_and_cuts_what_is_too_long) {
  Page page;
  Progress mark;
  mark.progress = 7;
  set_text(mark.stage, std::string(1000, 's'));
  set_text(mark.step, "step");
  page.write(mark);
  const Progress read = page.read();
  EXPECT_EQ(read.progress, 7U);
  EXPECT_EQ(std::string(read.stage), std::string(sizeof mark.stage - 1, 's'));
  EXPECT_STREQ(read.step, "step");
}

}  // namespace
}  // namespace oddrank::control
