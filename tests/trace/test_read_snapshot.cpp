// Snapshots: names, lines, times, open collectives, and whether the process lives.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/proc.hpp"
#include "record_builder.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {
namespace {

constexpr std::int64_t kBase = 1'700'000'000'000'000'000;

class SavedRecord : public ::testing::Test {
 protected:
  SavedRecord() { fill_record(record_); }
  ~SavedRecord() override { ::unlink(path_.c_str()); }
  // Not the descriptor under /proc: that is a link, which the reader does not follow.
  const std::string& path() {
    record_.save(path_);
    return path_;
  }
  RecordBuilder record_;
  std::string path_ = ::testing::TempDir() + "oddrank-" + std::to_string(::getpid()) + ".trace";
};

TEST_F(SavedRecord, stacks_have_names_and_lines_and_the_last_event_its_time) {
  const Snapshot now = read_snapshot(path());
  EXPECT_EQ(now.process.rank, 3);
  EXPECT_EQ(now.trouble, "");
  EXPECT_EQ(now.counters.step, 6);
  ASSERT_EQ(now.threads.size(), 2U);
  const ThreadNow& main = now.threads[0];
  ASSERT_EQ(main.stack.size(), 2U);
  EXPECT_EQ(main.stack[0].function, "main");
  EXPECT_EQ(main.stack[0].file, "/home/user/train.py");
  EXPECT_EQ(main.stack[1].function, "Trainer.step");
  EXPECT_EQ(main.stack[1].line, 44);
  // Two ticks a nanosecond; the last of 40 events is at tick 139, the first picture at 1,000.
  EXPECT_EQ(main.last, kBase - 431);
}

TEST_F(SavedRecord, an_ended_collective_is_last_and_the_others_are_open) {
  const Snapshot now = read_snapshot(path());
  ASSERT_TRUE(now.last.has_value());
  EXPECT_EQ(now.last->collective.number, 1U);
  EXPECT_EQ(now.names->group_name(now.last->collective.group), "default_pg");
  EXPECT_EQ(now.last->operation, "all_reduce");
  EXPECT_TRUE(now.last->begin.has_value());
  ASSERT_EQ(now.open.size(), 1U);
  EXPECT_EQ(now.open[0].collective.number, 2U);
  EXPECT_FALSE(now.open[0].end.has_value());
  ASSERT_EQ(now.sections.size(), 1U);
  EXPECT_EQ(now.sections[0].mark.text, "forward");
}

TEST_F(SavedRecord, a_section_that_has_ended_is_not_open) {
  record_.mark(MarkKind::kSectionEnd, 1, "forward");
  EXPECT_TRUE(read_snapshot(path()).sections.empty());
}

TEST_F(SavedRecord, a_code_that_is_in_no_dictionary_is_shown_by_its_number) {
  const Place unknown[] = {Place::of(99, 5, static_cast<std::uint8_t>(Kind::kLine))};
  record_.thread(1, "strange", unknown);
  const Snapshot now = read_snapshot(path());
  ASSERT_EQ(now.threads.size(), 3U);
  EXPECT_EQ(now.threads[1].stack[0].function, "code 99");
  EXPECT_EQ(now.threads[1].stack[0].line, std::nullopt);
}

TEST_F(SavedRecord, a_frame_recorded_by_calls_has_no_line) {
  const Place called[] = {Place::of(1, kNoPosition, static_cast<std::uint8_t>(Kind::kCall))};
  record_.thread(1, "called", called);
  EXPECT_EQ(read_snapshot(path()).threads[1].stack[0].line, std::nullopt);
}

TEST_F(SavedRecord, history_is_one_order_of_marks_and_events_and_is_cut_to_the_last) {
  const History all = read_history(path(), 1000);
  EXPECT_EQ(all.events.size(), 15U + 2U);  // 15 of a ring of 16: its oldest slot is not read
  for (std::size_t i = 1; i < all.events.size(); ++i) {
    EXPECT_LE(all.events[i - 1].tsc, all.events[i].tsc);
  }
  const History last = read_history(path(), 3);
  ASSERT_EQ(last.events.size(), 3U);
  EXPECT_EQ(last.events[0].kind, Kind::kLine);
  EXPECT_EQ(last.events[1].mark, "step 6");
  EXPECT_EQ(last.events[2].mark, "begin forward");
}

TEST(Liveness, is_told_of_live_and_dead_processes_reused_pids_and_other_hosts) {
  Process process;
  process.pid = static_cast<std::uint32_t>(::getpid());
  process.start_time = read_stat(::getpid()).start_time;
  process.boot_id = boot_id();
  process.pid_namespace = pid_namespace();
  EXPECT_EQ(liveness_of(process), Liveness::kAlive);

  Process again = process;
  again.start_time -= 1;
  EXPECT_EQ(liveness_of(again), Liveness::kDead);

  Process elsewhere = process;
  elsewhere.boot_id = "another";
  EXPECT_EQ(liveness_of(elsewhere), Liveness::kUnknown);
  elsewhere = process;
  elsewhere.pid_namespace += 1;
  EXPECT_EQ(liveness_of(elsewhere), Liveness::kUnknown);

  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  Process zombie = process;
  zombie.pid = static_cast<std::uint32_t>(child);
  zombie.start_time = read_stat(child).start_time;
  EXPECT_EQ(liveness_of(zombie), Liveness::kDead);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace oddrank::trace
