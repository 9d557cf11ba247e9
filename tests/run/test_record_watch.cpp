// The heads of a record: what counts as progress, and when a process is quiet.
#include <gtest/gtest.h>
#include <unistd.h>

#include "../trace/record_builder.hpp"
#include "run/record_watch.hpp"

namespace oddrank::run {
namespace {

using trace::End;
using trace::RecordBuilder;

constexpr std::int64_t kSecond = 1'000'000'000, kQuiet = 5 * kSecond;
constexpr pid_t kPid = 4711;

class Watched : public ::testing::Test {
 protected:
  Watched() {
    record_.header().process.start_time = 99;
    record_.header().step = 0;
  }
  ~Watched() override { ::unlink(path_.c_str()); }
  // Saves the record and looks at it; returns the stage.
  std::string at(int second) {
    record_.save(path_);  // the same file: it is cut and filled again
    watch_.look(second * kSecond);
    return watch_.stage();
  }
  RecordBuilder record_;
  std::string path_ = ::testing::TempDir() + "oddrank-watch-" + std::to_string(::getpid());
  RecordWatch watch_{{"/nowhere/rank0", path_}, kPid, 99, kQuiet};
};

TEST_F(Watched, of_another_process_is_no_record) {
  record_.header().process.start_time = 98;
  EXPECT_EQ(at(1), "starting");
  record_.header().process.start_time = 99;
  EXPECT_EQ(at(2), "moving");
}

TEST_F(Watched, is_quiet_five_seconds_after_its_last_step_or_collective) {
  EXPECT_EQ(at(1), "moving");
  EXPECT_EQ(watch_.progress(), 0U);
  EXPECT_EQ(at(5), "moving");
  record_.mark(trace::MarkKind::kMark, 0, "note");  // no progress
  EXPECT_EQ(at(6), "quiet");
  EXPECT_EQ(watch_.quiet_ns(8 * kSecond), 7 * kSecond);
  record_.header().step = 4;
  EXPECT_EQ(at(9), "moving");
  EXPECT_EQ(watch_.step(), "3");
  EXPECT_EQ(at(14), "quiet");
  record_.collective(trace::Phase::kBegin, 1);
  EXPECT_EQ(at(15), "moving");
}

TEST_F(Watched, is_paused_while_a_section_of_that_name_is_open_and_moves_when_it_ends) {
  at(1);
  record_.mark(trace::MarkKind::kSectionBegin, 1, "data");
  EXPECT_EQ(at(7), "quiet");
  record_.mark(trace::MarkKind::kSectionBegin, 2, "oddrank:switch 60 /shared/run17");
  EXPECT_EQ(at(8), "paused");
  EXPECT_EQ(watch_.progress(), 0U);
  EXPECT_EQ(at(40), "paused");
  EXPECT_EQ(watch_.quiet_ns(40 * kSecond), 32 * kSecond);
  record_.mark(trace::MarkKind::kSectionEnd, 2, "oddrank:switch 60 /shared/run17");
  EXPECT_EQ(at(41), "moving");
  EXPECT_EQ(at(46), "quiet");
}

TEST_F(Watched, a_section_of_the_users_that_only_begins_alike_is_no_pause) {
  at(1);
  std::uint64_t number = 0;
  for (const char* name :
       {"oddrank:", "oddrank:load", "oddrank:switch", "oddrank:switch x y", "oddrank:nap 3 x",
        "oddrank:switch nan x", "oddrank:waits inf 1", "oddrank:waits 0 1", "oddrank:waits -1 1",
        "oddrank:waits 1x 1", "oddrank:+ab"}) {
    record_.mark(trace::MarkKind::kSectionBegin, ++number, name);
  }
  EXPECT_EQ(at(7), "quiet");
  record_.mark(trace::MarkKind::kSectionBegin, ++number, "oddrank:waits 1e+06 1");
  EXPECT_EQ(at(8), "paused");
}

TEST_F(Watched, is_not_paused_any_more_once_it_goes_on) {
  at(1);
  record_.mark(trace::MarkKind::kSectionBegin, 2, "oddrank:breakpoint 60 train.py:41");
  record_.header().step = 4;
  EXPECT_EQ(at(2), "moving");  // as it has moved since the last look
  EXPECT_EQ(at(3), "paused");
  record_.mark(trace::MarkKind::kSectionEnd, 2, "oddrank:breakpoint 60 train.py:41");
  record_.header().step = 5;
  EXPECT_EQ(at(4), "moving");
  EXPECT_EQ(at(9), "quiet");
}

TEST_F(Watched, tells_the_end_that_its_process_noted) {
  at(1);
  EXPECT_EQ(watch_.exit_code(), -1);
  set_text(record_.header().raised, "ValueError");
  at(2);
  EXPECT_EQ(watch_.exit_code(), 1);
  set_text(record_.header().raised, "KeyboardInterrupt");
  at(3);
  EXPECT_EQ(watch_.exit_code(), 130);
  record_.header().end = static_cast<std::uint64_t>(End::kExited) | std::uint64_t{7} << 32;
  at(4);
  EXPECT_EQ(watch_.exit_code(), 7);
}

TEST_F(Watched, keeps_a_record_whose_file_was_removed_and_takes_a_new_one) {
  record_.header().step = 6;
  at(1);
  ::unlink(path_.c_str());
  watch_.look(2 * kSecond);
  EXPECT_EQ(watch_.step(), "5");
  EXPECT_NE(watch_.file(), nullptr);
  RecordBuilder other;
  other.header().process.start_time = 99;
  other.header().step = 2;
  other.save(path_);
  watch_.look(20 * kSecond);
  EXPECT_STREQ(watch_.stage(), "moving");
  EXPECT_EQ(watch_.step(), "1");
}

TEST_F(Watched, that_is_cut_keeps_its_last_heads) {
  record_.header().step = 6;
  at(1);
  ASSERT_EQ(::truncate(path_.c_str(), 100), 0);
  watch_.look(20 * kSecond);
  EXPECT_EQ(watch_.step(), "5");
}

}  // namespace
}  // namespace oddrank::run
