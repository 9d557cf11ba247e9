// A thread's id is the kernel's, also in a child that was forked after its parent had asked.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "os/proc.hpp"

namespace oddrank {
namespace {

std::uint32_t asked_of_the_kernel() { return static_cast<std::uint32_t>(::syscall(SYS_gettid)); }

TEST(ThreadId, IsTheKernelsInEachThreadAndInAForkedChild) {
  EXPECT_EQ(thread_id(), asked_of_the_kernel());
  EXPECT_EQ(thread_id(), asked_of_the_kernel());
  std::thread([] { EXPECT_EQ(thread_id(), asked_of_the_kernel()); }).join();

  const pid_t child = ::fork();
  if (child == 0) ::_exit(thread_id() == asked_of_the_kernel() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace oddrank
