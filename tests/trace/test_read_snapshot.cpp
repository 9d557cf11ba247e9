// Snapshots: names, lines, times, open collectives, and whether the process lives.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "../in_folder.hpp"
#include "../words.hpp"
#include "os/proc.hpp"
#include "record_builder.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {
namespace {

constexpr std::int64_t kBase = 1'700'000'000'000'000'000;

class SavedRecord : public InFolder {
 protected:
  // Not the descriptor under /proc: that is a link, which the reader does not follow.
  std::string path() {
    record_.save(InFolder::path("saved"));
    return InFolder::path("saved");
  }
  FullRecord record_;
};

TEST(Latest, an_earlier_or_unknown_time_leaves_a_later_one) {
  Time latest;
  for (const Time time : {Time{}, Time{5}, Time{3}, Time{}, Time{7}, Time{7}, Time{6}}) {
    const Time before = latest;
    note_latest(latest, time);
    EXPECT_EQ(latest, std::max(before, time));
  }
  EXPECT_EQ(latest, Time{7});
}

TEST_F(SavedRecord, stacks_have_names_and_lines_and_the_last_event_its_time) {
  const Snapshot now = read_snapshot(path());
  EXPECT_EQ(words(now.process.rank, now.trouble, now.header.step(), now.threads.size()),
            "3 '' 6 2");
  const ThreadNow& main = now.threads.at(0);
  EXPECT_EQ(each(main.stack, &Frame::function, &Frame::file, &Frame::line),
            "main /home/user/train.py 12, Trainer.step /home/user/train.py 44");
  // Two ticks a nanosecond; the last of 40 events is at tick 139, the first picture at 1,000.
  EXPECT_EQ(main.last, kBase - 431);
}

TEST_F(SavedRecord, an_ended_collective_is_last_and_the_others_are_open) {
  const Snapshot now = read_snapshot(path());
  ASSERT_TRUE(now.last.has_value());
  EXPECT_EQ(words(now.last->number, now.names->group_name(now.last->group),
                  now.names->operation(now.last->operation), now.last->begin.has_value()),
            "1 default_pg allreduce_ 1");
  ASSERT_EQ(now.open.size(), 1U);
  EXPECT_EQ(words(now.open[0].number, now.open[0].end), "2 -");
  ASSERT_EQ(now.sections.size(), 1U);
  EXPECT_EQ(now.sections[0].text, "forward");
  record_.mark(MarkKind::kSectionEnd, 1, "forward");
  EXPECT_TRUE(read_snapshot(path()).sections.empty());
}

TEST_F(SavedRecord, code_in_no_dictionary_has_its_number_and_a_frame_recorded_by_calls_no_line) {
  const Place places[] = {Place::of(99, 5, static_cast<std::uint8_t>(Kind::kLine)),
                          Place::of(1, kNoPosition, static_cast<std::uint8_t>(Kind::kCall))};
  record_.thread(1, "strange", places);
  const Snapshot now = read_snapshot(path());
  ASSERT_EQ(now.threads.size(), 3U);
  EXPECT_EQ(each(now.threads[1].stack, &Frame::function, &Frame::line), "code 99 -, main -");
}

TEST_F(SavedRecord, a_stack_has_the_time_of_its_sample_if_a_line_in_it_was_sampled) {
  const Place places[] = {Place::of(1, 12, static_cast<std::uint8_t>(Kind::kLine)),
                          Place::of(2, 44, static_cast<std::uint8_t>(Kind::kSampled))};
  record_.thread(1, "sampled", places).sampled = 1000;
  record_.slot(0).sampled = 1000;
  const Snapshot now = read_snapshot(path());
  EXPECT_EQ(now.threads.at(0).sampled, std::nullopt);
  EXPECT_EQ(now.threads.at(1).sampled, kBase);
  EXPECT_EQ(now.threads.at(1).stack.at(1).line, 44U);
}

TEST_F(SavedRecord, a_gil_is_held_if_it_was_wanted_a_second_before_the_last_clock_reading) {
  EXPECT_EQ(read_snapshot(path()).gil_wanted, std::nullopt);
  record_.header().gil_wanted = 1002;
  EXPECT_EQ(read_snapshot(path()).gil_wanted, std::nullopt);
  record_.header().gil_wanted = 1000;
  EXPECT_EQ(read_snapshot(path()).gil_wanted, kBase);
}

TEST_F(SavedRecord, history_is_one_order_of_marks_and_events_and_is_cut_to_the_last) {
  const History all = read_history(path(), 1000);
  EXPECT_EQ(all.events.size(), 15U + 2U);  // 15 of a ring of 16: its oldest slot is not read
  for (std::size_t i = 1; i < all.events.size(); ++i) {
    EXPECT_LE(all.events[i - 1].tsc, all.events[i].tsc);
  }
  const History last = read_history(path(), 3);
  EXPECT_EQ(each(last.events, &HistoryEvent::kind, &HistoryEvent::mark),
            words(Kind::kLine, "") + ", " + words(Kind::kNone, "step 6") + ", " +
                words(Kind::kNone, "begin forward"));
}

TEST(Liveness, is_told_of_live_and_dead_processes_reused_pids_and_other_hosts) {
  Process process;
  process.pid = static_cast<std::uint32_t>(::getpid());
  process.start_time = read_stat(::getpid()).start_time;
  process.boot_id = boot_id();
  process.pid_namespace = pid_namespace();
  EXPECT_EQ(liveness_of(process), Liveness::kAlive);

  const struct {
    void (*change)(Process&);
    Liveness life;
  } rows[] = {{[](Process& other) { other.start_time -= 1; }, Liveness::kDead},
              {[](Process& other) { other.boot_id = "another"; }, Liveness::kUnknown},
              {[](Process& other) { other.pid_namespace += 1; }, Liveness::kUnknown}};
  for (const auto& row : rows) {
    Process other = process;
    row.change(other);
    EXPECT_EQ(liveness_of(other), row.life) << &row - rows;
  }
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
