// Slim records: a judge reads in them what it reads in the records that they were made of.
#include <gtest/gtest.h>

#include <fstream>

#include "../in_folder.hpp"
#include "../words.hpp"
#include "read_everything.hpp"
#include "record_builder.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {
namespace {

constexpr auto kOfLine = static_cast<std::uint8_t>(Kind::kLine);

// Writes both files anew at each call.
struct Both {
  Snapshot whole, slim;
};

class Slim : public InFolder {
 protected:
  std::string slim_of(RecordBuilder& record) {
    record.save(path_);
    const std::string slim = slim_record(RecordFile(path_));
    std::ofstream(slim_path_, std::ios::binary | std::ios::trunc) << slim;
    return slim;
  }
  Both both(RecordBuilder& record) {
    slim_of(record);
    return {read_snapshot(path_), read_snapshot(slim_path_)};
  }
  const std::string path_ = path("whole"), slim_path_ = path("slim");
};

std::string show(const Collective& one) {
  return words(one.number, one.state, one.group, one.operation, one.tid, one.type, one.bytes,
               one.other, one.partner, one.role, one.side, one.sequence, one.begin, one.end,
               one.failed);
}

std::string show(const Frame& one) { return words(one.function, one.file, one.line, one.now.bits); }

std::vector<const Code*> lowered_in(const Snapshot& now) {
  std::vector<const Code*> found;
  for (const Code& one : now.names->codes()) {
    if (one.is_lowered()) found.push_back(&one);
  }
  return found;
}

// All that a judge reads, a line for each thing.
std::string show(const Snapshot& now) {
  const Process& process = now.process;
  std::string all = words(process.rank, process.pid, process.host, process.arguments,
                          now.header.step(), now.header.end(), now.header.exit_code(),
                          text_of(now.header->raised), now.step, now.last_event, now.trouble);
  const auto add = [&all](const std::string& line) { all += "\n" + line; };
  for (const ThreadNow& one : now.threads) {
    const Thread& thread = one.thread;
    add(words(thread.tid, thread.name, thread.state, thread.depth, thread.events, one.last));
    for (const Frame& frame : one.stack) add("  " + show(frame));
  }
  for (const Collective& one : now.open) {
    add(words("open", show(one), now.names->operation(one.operation)));
  }
  if (now.last) add("last " + show(*now.last));
  for (const GroupProgress& one : now.groups) {
    add(words(one.group, one.begun, one.ended, now.clock.realtime_ns(one.last),
              now.names->group_name(one.group)));
  }
  for (const Mark& one : now.sections) {
    add(words("section", one.text, now.clock.realtime_ns(one.tsc)));
  }
  for (const Code* one : lowered_in(now)) {
    add(words("lowered", one->qualified_name, one->level_now(), one->level,
              now.clock.realtime_ns(one->now.since())));
  }
  return all;
}

void expect_same(const Both& both) {
  EXPECT_EQ(show(both.whole), show(both.slim));
  EXPECT_EQ(both.slim.trouble, "");
  for (const GroupProgress& one : both.slim.groups) {
    const ProcessGroup* group = both.slim.names->group(one.group);
    const ProcessGroup* of_whole = both.whole.names->group(one.group);
    ASSERT_TRUE(group == nullptr || of_whole->size == group->size);
  }
}

TEST_F(Slim, has_the_snapshot_of_its_record) {
  FullRecord record;
  record.header().end = static_cast<std::uint64_t>(End::kExited) | std::uint64_t{3} << 32;
  set_text(record.header().raised, "ValueError");
  expect_same(both(record));
}

TEST_F(Slim, of_an_empty_or_a_slim_record_is_the_same) {
  RecordBuilder record;
  EXPECT_TRUE(both(record).slim.threads.empty());
  expect_same(both(record));
  fill_record(record);
  const std::string first = slim_of(record);
  EXPECT_EQ(slim_record(RecordFile(slim_path_)).size(), first.size());
}

TEST_F(Slim, keeps_the_last_128_ends_and_begins_of_collectives_and_all_open_ones) {
  FullRecord record({.collectives = 512, .open = 8});
  for (std::uint64_t number = 3; number < 200; ++number) {
    record.collective(Phase::kBegin, number);
    record.collective(Phase::kEnd, number);
  }
  record.open_collective(2, 200);
  expect_same(both(record));
  const RecordFile slim(slim_path_);
  EXPECT_EQ(slim.layout().collectives.count, 128U);
  EXPECT_EQ(read_collectives(slim).list.size(), 128U);
  EXPECT_EQ(read_collectives(slim).list.back().number, 199U);
  EXPECT_EQ(read_open_collectives(slim).size(), 2U);  // the first one began long ago
  const auto all = read_joined_collectives(RecordFile(path_));
  const auto last = read_joined_collectives(slim);
  for (std::size_t i = 1; i <= 64; ++i) {
    EXPECT_EQ(show(all[all.size() - i]), show(last[last.size() - i]));
  }
}

TEST_F(Slim, keeps_the_calls_whose_time_is_known) {
  FullRecord record;
  for (std::uint64_t begin = 1; begin < 10; ++begin) record.timed_call(begin, 100 * begin);
  slim_of(record);
  const auto timed = [](const std::string& path) {
    return each(read_timed(RecordFile(path)), &Collective::state, &Collective::begin,
                &Collective::end, &Collective::sequence, &Collective::group);
  };
  EXPECT_EQ(timed(slim_path_), timed(path_));
  EXPECT_EQ(read_timed(RecordFile(slim_path_)).back().end, 909U);
  EXPECT_EQ(read_timed(RecordFile(slim_path_)).size(), 4U);
  EXPECT_EQ(Dictionary(RecordFile(slim_path_)).group_name(1), "default_pg");
}

TEST_F(Slim, keeps_the_last_step_and_open_sections_however_many_marks_came_later) {
  FullRecord record({.marks = 256});
  for (std::uint64_t number = 10; number < 20; ++number) {
    record.mark(MarkKind::kSectionBegin, number, "short");
    record.mark(MarkKind::kSectionEnd, number, "short");
  }
  for (int i = 0; i < 100; ++i) record.mark(MarkKind::kMark, 0, "note");
  const Both read = both(record);
  expect_same(read);
  EXPECT_EQ(read.slim.sections.size(), 1U);
  EXPECT_TRUE(read.slim.step.has_value());
  EXPECT_EQ(read_marks(RecordFile(slim_path_)).list.size(), 34U);
}

TEST_F(Slim, has_the_code_that_is_recorded_less_closely_in_stacks_and_elsewhere) {
  FullRecord record;
  record.code(7, "in_a_stack", 1, 90).now = LevelNow::of(Level::kWhere, 5000).bits;
  record.code(8, "elsewhere", 1, 95).now = LevelNow::of(Level::kOff, 6000).bits;
  record.code(9, "raised_again", 1, 99).now = LevelNow::of(Level::kCalls, 7000).bits;
  const Place places[] = {Place::of(7, kNoPosition, kOfLine)};
  record.thread(1, "limited", places);
  const Both read = both(record);
  expect_same(read);
  const std::vector<const Code*> lowered = lowered_in(read.slim);
  ASSERT_EQ(lowered.size(), 2U);
  EXPECT_EQ(lowered[1]->qualified_name, "elsewhere");
  EXPECT_EQ(read.slim.threads[1].stack[0].now.level(), Level::kWhere);
}

TEST_F(Slim, has_lines_without_line_tables) {
  FullRecord record;
  record.code(7, "offsets", 1, 90, "\x02\x03");  // two instructions, one line below the first
  const Place places[] = {Place::of(7, 2, kOfLine | kIsOffset),
                          Place::of(7, 400, kOfLine | kIsOffset)};
  record.thread(1, "by offsets", places);
  const Both read = both(record);
  expect_same(read);
  EXPECT_EQ(read.whole.threads[1].stack[0].line, 91U);
  const Dictionary names{RecordFile(slim_path_)};
  for (const Code& code : names.codes()) EXPECT_TRUE(code.linetable.empty());
}

TEST_F(Slim, leaves_out_ended_threads_but_not_the_main_one_or_an_issuer) {
  FullRecord record;
  constexpr auto ended = static_cast<std::uint64_t>(ThreadState::kEnded) | std::uint64_t{1} << 32;
  record.header().process.pid = 100;  // the first thread is the main one
  record.slot(0).state = ended;
  record.slot(2).state = ended;
  record.slot(2).tid = 77;  // issued the open collective
  record.thread(1, "idle", {}).state = ended;
  const Both read = both(record);
  ASSERT_EQ(read.whole.threads.size(), 3U);
  ASSERT_EQ(read.slim.threads.size(), 2U);
  EXPECT_EQ(read.slim.threads[0].thread.tid, 100U);
  EXPECT_EQ(read.slim.threads[1].thread.tid, 77U);
}

TEST_F(Slim, of_a_process_whose_main_thread_has_gone_shows_its_last_events) {
  FullRecord record({.ring_events = 256});
  record.header().process.pid = 100;
  record.slot(0).depth = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) record.event(0, 200 + i, Place::of(2, 7, kOfLine));
  slim_of(record);
  const History whole = read_history(path_, 100), slim = read_history(slim_path_, 100);
  const auto frame = [](const HistoryEvent& event) { return show(event.frame); };
  EXPECT_EQ(each(whole.events, &HistoryEvent::tsc, &HistoryEvent::kind, frame),
            each(slim.events, &HistoryEvent::tsc, &HistoryEvent::kind, frame));
}

TEST_F(Slim, stays_below_its_limit_with_many_deep_threads_and_long_names) {
  FullRecord record({.dictionary = 4 << 20,
                     .threads = 600,
                     .stack_room = 200,
                     .marks = 1024,
                     .collectives = 4096,
                     .open = 600,
                     .groups = 4096});
  const std::string name(4000, 'n');
  std::vector<Place> stack;
  for (std::uint32_t i = 0; i < 200; ++i) {
    record.code(100 + i, name + std::to_string(i), 1, 1);
    stack.push_back(Place::of(100 + i, i, kOfLine));
  }
  record.header().process.pid = 100 + 599;
  for (std::uint32_t i = 0; i < 600; ++i) {
    record.thread(i, "many", stack);
    record.open_collective(i, 1000 + i);
    record.event(i, 5, stack[0]);
    record.mark(MarkKind::kSectionBegin, 1000 + i, "open");
  }
  auto* groups = record.at<GroupSlot>(record.header().groups.offset);
  for (std::uint32_t i = 0; i < 4096; ++i) groups[i].begun = 1;
  const Both read = both(record);
  EXPECT_LE(RecordFile(slim_path_).size(), kLargestSlim);
  EXPECT_EQ(read.slim.trouble, "");
  EXPECT_EQ(read.slim.threads.size(), 256U);
  EXPECT_EQ(read.slim.sections.size(), 32U + 64U) << "last marks, and others";
  const ThreadNow& main = read.slim.threads.back();
  EXPECT_EQ(main.thread.tid, 699U);
  EXPECT_EQ(main.thread.depth, 200U);
  EXPECT_TRUE(main.thread.cut);
  EXPECT_EQ(main.stack.back().line, 199U);  // the innermost frame
  EXPECT_EQ(read.slim.header->lost_groups, 4096U - 512U);
}

TEST_F(Slim, of_a_broken_record_is_a_good_one) {
  FullRecord record;
  for (std::uint64_t byte = sizeof(Header); byte < record.size(); byte += 8) {
    std::uint64_t& word = *record.at<std::uint64_t>(byte);
    const std::uint64_t before = word;
    const std::uint64_t wrong[] = {~std::uint64_t{0}, before + 1, before << 32};
    word = wrong[byte / 8 % 3];
    slim_of(record);
    const RecordFile slim(slim_path_);
    EXPECT_LE(slim.size(), kLargestSlim);
    EXPECT_GT(read_parts(slim), 0U);
    EXPECT_EQ(read_snapshot(slim_path_).trouble, "");
    word = before;
  }
}

}  // namespace
}  // namespace oddrank::trace
