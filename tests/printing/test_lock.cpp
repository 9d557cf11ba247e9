// The lock file is shared, survives its holders, and knows the lines that they left unfinished.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "../in_folder.hpp"
#include "os/fd.hpp"
#include "printing/lock.hpp"

namespace {

namespace fs = std::filesystem;
using namespace oddrank::printing;

constexpr std::int64_t kPatienceMs = 200;
const Interrupt kNoInterrupt{[](void*) { return false; }, nullptr};

class Lock : public oddrank::InFolder {
 protected:
  void SetUp() override {
    table_ = open_lock_file({folder_}).table;
    file_ = folder_ + "/out";
    out_ = oddrank::Fd(::open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    key_ = output_key(out_.get());
  }

  int say(const std::string& text) {
    Abandoned ignored;
    return write_message(*table_, out_.get(), key_, text, kPatienceMs, kNoInterrupt, ignored);
  }

  std::string written() const {
    std::ifstream file(file_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // A child takes the turn, writes `text`, and is killed before it gives the turn back.
  void write_in_a_killed_child(const std::string& text) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      Turn turn(*table_, key_, kPatienceMs);
      if (!turn.try_take()) ::_exit(1);
      if (::write(out_.get(), text.data(), text.size()) < 0) ::_exit(2);
      ::raise(SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status));
  }

  std::string file_;
  Table* table_ = nullptr;
  oddrank::Fd out_;
  std::uint64_t key_ = 0;
};

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

TEST_F(Lock, of_a_killed_holder_ends_its_cut_line_and_adds_no_empty_line_to_a_whole_one) {
  write_in_a_killed_child("half a li");
  EXPECT_EQ(say("next\n"), 0);
  write_in_a_killed_child("whole\n");
  EXPECT_EQ(say("next\n"), 0);
  EXPECT_EQ(written(), "half a li\nnext\nwhole\nnext\n");
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

}  // namespace
