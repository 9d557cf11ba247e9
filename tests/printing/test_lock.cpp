// The lock file is shared, survives its holders, and knows the lines that they left unfinished.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "os/fd.hpp"
#include "printing/lock.hpp"
#include "printing/writer.hpp"

namespace {

namespace fs = std::filesystem;
using namespace oddrank::printing;

constexpr std::int64_t kPatienceMs = 200;
const Interrupt kNoInterrupt{[](void*) { return false; }, nullptr};

class Lock : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "oddrank-lock-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    table_ = open_lock_file({folder_}).table;
    file_ = folder_ + "/out";
    out_ = oddrank::Fd(::open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    key_ = output_key(out_.get());
  }
  void TearDown() override { fs::remove_all(folder_); }

  int say(const std::string& text, Abandoned* abandoned = nullptr) {
    Abandoned ignored;
    return write_message(*table_, out_.get(), key_, text, kPatienceMs, kNoInterrupt,
                         abandoned == nullptr ? ignored : *abandoned);
  }

  std::string written() const {
    std::ifstream file(file_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // A child that takes the turn, writes `text`, and meets `signal` before it gives the turn back.
  pid_t child_struck_while_holding(const std::string& text, int signal) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      Turn turn(*table_, key_, kPatienceMs);
      if (!turn.try_take()) ::_exit(1);
      if (::write(out_.get(), text.data(), text.size()) < 0) ::_exit(2);
      ::raise(signal);
      turn.end(true);
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
    EXPECT_TRUE(WIFSIGNALED(status) || WIFSTOPPED(status));
    return pid;
  }

  std::string folder_;
  std::string file_;
  Table* table_ = nullptr;
  oddrank::Fd out_;
  std::uint64_t key_ = 0;
};

TEST_F(Lock, file_is_private_and_joined_by_who_comes_later) {
  const LockFile again = open_lock_file({folder_});
  EXPECT_NE(again.table, table_);  // another mapping of
  again.table->outputs[7].cut.store(42);
  EXPECT_EQ(table_->outputs[7].cut.load(), 42U);  // the same memory
  struct stat file {};
  ASSERT_EQ(::stat(again.path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600U);
}

TEST_F(Lock, falls_back_to_the_next_folder_and_at_last_to_memory) {
  const LockFile second = open_lock_file({"/proc/nowhere", folder_});
  EXPECT_EQ(second.path.rfind(folder_, 0), 0U);
  EXPECT_NE(second.refused.find("/proc/nowhere"), std::string::npos);
  const LockFile memory = open_lock_file({"/proc/nowhere"});
  EXPECT_EQ(memory.path, "");
  EXPECT_NE(memory.table, nullptr);
}

TEST_F(Lock, half_made_file_is_made_again) {
  const std::string path = open_lock_file({folder_}).path;
  fs::resize_file(path, 100);
  fs::resize_file(path, 0);
  Table* table = open_lock_file({folder_}).table;
  EXPECT_EQ(table->magic.load(), kMagic);
}

TEST_F(Lock, key_names_the_output_and_not_the_descriptor) {
  const oddrank::Fd copy(::dup(out_.get()));
  EXPECT_EQ(output_key(copy.get()), key_);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  EXPECT_NE(output_key(ends[1]), key_);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(output_key(-1), 0U);
  EXPECT_EQ(errno, EBADF);
}

TEST_F(Lock, of_a_killed_holder_goes_on_at_once_and_its_cut_line_stands_alone) {
  child_struck_while_holding("half a li", SIGKILL);
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  Abandoned abandoned;
  EXPECT_EQ(say("whole\n", &abandoned), 0);
  EXPECT_EQ(abandoned.pid, 0U);
  EXPECT_EQ(written(), "half a li\nwhole\n");
}

TEST_F(Lock, of_a_holder_killed_after_its_line_adds_no_empty_line) {
  child_struck_while_holding("whole\n", SIGKILL);
  EXPECT_EQ(say("next\n"), 0);
  EXPECT_EQ(written(), "whole\nnext\n");
}

TEST_F(Lock, of_a_stopped_holder_moves_on_and_serves_both_afterwards) {
  const pid_t pid = child_struck_while_holding("half a li", SIGSTOP);
  Abandoned abandoned;
  EXPECT_EQ(say("one\n", &abandoned), 0);
  EXPECT_EQ(abandoned.pid, static_cast<std::uint32_t>(pid));
  EXPECT_EQ(abandoned.state, 'T');
  abandoned = {};
  EXPECT_EQ(say("two\n", &abandoned), 0);
  EXPECT_EQ(abandoned.pid, 0U);  // said and waited for once
  ::kill(pid, SIGCONT);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(say("three\n"), 0);
  EXPECT_EQ(written(), "half a li\none\ntwo\nthree\n");
}

TEST_F(Lock, is_never_waited_for_for_ever_though_all_holders_stop) {
  std::array<pid_t, kLanes + 2> stopped{};
  for (pid_t& pid : stopped) {
    // Each child has to leave those before it behind first.
    pid = ::fork();
    if (pid == 0) {
      Turn turn(*table_, key_, 10);
      take(turn, out_.get(), kNoInterrupt);
      ::raise(SIGSTOP);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  EXPECT_EQ(say("still\n"), 0);
  EXPECT_EQ(written(), "still\n");
  for (const pid_t pid : stopped) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

TEST_F(Lock, error_in_the_middle_of_a_message_starts_the_next_on_a_new_line) {
  Turn turn(*table_, key_, kPatienceMs);
  ASSERT_TRUE(turn.try_take());
  ASSERT_EQ(::write(out_.get(), "abc", 3), 3);
  turn.end(false);
  EXPECT_EQ(say("next\n"), 0);
  EXPECT_EQ(say("last\n"), 0);
  EXPECT_EQ(written(), "abc\nnext\nlast\n");
}

TEST_F(Lock, message_from_inside_a_write_follows_it) {
  const Hold outer(*table_, key_, Hold::Kind::kWriting);
  EXPECT_EQ(say("later\n"), 0);
  EXPECT_EQ(written(), "");
  EXPECT_EQ(outer.later, "later\n");
}

TEST_F(Lock, message_from_inside_to_an_output_with_the_same_lock_is_written_at_once) {
  std::string path;
  oddrank::Fd neighbor;
  for (int i = 0;
       !neighbor || &output_of(*table_, output_key(neighbor.get())) != &output_of(*table_, key_);
       ++i) {
    path = folder_ + "/" + std::to_string(i);
    neighbor.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }
  const std::uint64_t key = output_key(neighbor.get());
  Turn turn(*table_, key_, kPatienceMs);
  ASSERT_TRUE(turn.try_take());
  for (const Hold::Kind kind : {Hold::Kind::kWriting, Hold::Kind::kPython}) {
    const Hold outer(*table_, key_, kind);
    Abandoned abandoned;
    EXPECT_EQ(
        write_message(*table_, neighbor.get(), key, "now\n", kPatienceMs, kNoInterrupt, abandoned),
        0);
    EXPECT_EQ(abandoned.pid, 0U);
    EXPECT_EQ(outer.later, "");
  }
  turn.end(true);
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "now\nnow\n");
}

TEST(Prefix, stands_before_every_line_and_not_in_the_middle_of_one) {
  EXPECT_EQ(prefix_lines("a\nb\n", "> ", true), "> a\n> b\n");
  EXPECT_EQ(prefix_lines("a\nb", "> ", false), "a\n> b");
  EXPECT_EQ(prefix_lines("\n", "> ", true), "> \n");
  EXPECT_EQ(prefix_lines("", "> ", true), "");
}

}  // namespace
