// Slim records: a judge reads in them what it reads in the records that they were made of.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "read_everything.hpp"
#include "record_builder.hpp"
#include "trace/read/slim.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {
namespace {

constexpr auto kOfLine = static_cast<std::uint8_t>(Kind::kLine);

// Writes both files anew at each call.
struct Both {
  Snapshot whole, slim;
};

class Slim : public ::testing::Test {
 protected:
  ~Slim() override {
    ::unlink(path_.c_str());
    ::unlink(slim_path_.c_str());
  }
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
  std::string path_ = ::testing::TempDir() + "oddrank-" + std::to_string(::getpid()) + ".whole";
  std::string slim_path_ = ::testing::TempDir() + "oddrank-" + std::to_string(::getpid()) + ".slim";
};

void expect_same(const Collective& a, const Collective& b) {
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.operation, b.operation);
  EXPECT_EQ(a.tid, b.tid);
  EXPECT_EQ(a.data_type, b.data_type);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.other, b.other);
  EXPECT_EQ(a.partner, b.partner);
  EXPECT_EQ(a.role, b.role);
  EXPECT_EQ(a.side, b.side);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.begin, b.begin);
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.failed, b.failed);
}

void expect_same(const Frame& a, const Frame& b) {
  EXPECT_EQ(a.function, b.function);
  EXPECT_EQ(a.file, b.file);
  EXPECT_EQ(a.line, b.line);
  EXPECT_EQ(a.now.bits, b.now.bits);
}

void expect_same(const Both& both) {
  const auto& [a, b] = both;
  EXPECT_EQ(a.process.rank, b.process.rank);
  EXPECT_EQ(a.process.pid, b.process.pid);
  EXPECT_EQ(a.process.host, b.process.host);
  EXPECT_EQ(a.process.arguments, b.process.arguments);
  EXPECT_EQ(a.counters.step, b.counters.step);
  EXPECT_EQ(a.counters.end, b.counters.end);
  EXPECT_EQ(a.counters.exit_code, b.counters.exit_code);
  EXPECT_EQ(a.counters.raised, b.counters.raised);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.last_event, b.last_event);
  EXPECT_EQ(b.trouble, "");
  ASSERT_EQ(a.threads.size(), b.threads.size());
  for (std::size_t i = 0; i < a.threads.size(); ++i) {
    EXPECT_EQ(a.threads[i].thread.tid, b.threads[i].thread.tid);
    EXPECT_EQ(a.threads[i].thread.name, b.threads[i].thread.name);
    EXPECT_EQ(a.threads[i].thread.state, b.threads[i].thread.state);
    EXPECT_EQ(a.threads[i].thread.depth, b.threads[i].thread.depth);
    EXPECT_EQ(a.threads[i].thread.events, b.threads[i].thread.events);
    EXPECT_EQ(a.threads[i].last, b.threads[i].last);
    ASSERT_EQ(a.threads[i].stack.size(), b.threads[i].stack.size());
    for (std::size_t frame = 0; frame < a.threads[i].stack.size(); ++frame) {
      expect_same(a.threads[i].stack[frame], b.threads[i].stack[frame]);
    }
  }
  ASSERT_EQ(a.open.size(), b.open.size());
  for (std::size_t i = 0; i < a.open.size(); ++i) {
    expect_same(a.open[i].collective, b.open[i].collective);
    EXPECT_EQ(a.open[i].operation, b.open[i].operation);
  }
  ASSERT_EQ(a.last.has_value(), b.last.has_value());
  if (a.last) expect_same(a.last->collective, b.last->collective);
  ASSERT_EQ(a.groups.size(), b.groups.size());
  for (std::size_t i = 0; i < a.groups.size(); ++i) {
    const std::uint32_t id = a.groups[i].progress.group;
    EXPECT_EQ(id, b.groups[i].progress.group);
    EXPECT_EQ(a.groups[i].progress.begun, b.groups[i].progress.begun);
    EXPECT_EQ(a.groups[i].progress.ended, b.groups[i].progress.ended);
    EXPECT_EQ(a.groups[i].last, b.groups[i].last);
    EXPECT_EQ(a.names->group_name(id), b.names->group_name(id));
    const ProcessGroup* group = b.names->group(id);
    ASSERT_TRUE(group == nullptr || a.names->group(id)->size == group->size);
  }
  ASSERT_EQ(a.sections.size(), b.sections.size());
  for (std::size_t i = 0; i < a.sections.size(); ++i) {
    EXPECT_EQ(a.sections[i].mark.text, b.sections[i].mark.text);
    EXPECT_EQ(a.sections[i].begin, b.sections[i].begin);
  }
  ASSERT_EQ(a.lowered.size(), b.lowered.size());
  for (std::size_t i = 0; i < a.lowered.size(); ++i) {
    expect_same(a.lowered[i].frame, b.lowered[i].frame);
    EXPECT_EQ(a.lowered[i].level, b.lowered[i].level);
    EXPECT_EQ(a.lowered[i].wanted, b.lowered[i].wanted);
    EXPECT_EQ(a.lowered[i].since, b.lowered[i].since);
  }
}

TEST_F(Slim, has_the_snapshot_of_its_record) {
  RecordBuilder record;
  fill_record(record);
  record.header().end = static_cast<std::uint64_t>(End::kExited) | std::uint64_t{3} << 32;
  set_text(record.header().raised, "ValueError");
  expect_same(both(record));
}

TEST_F(Slim, of_an_empty_record_is_a_record) {
  RecordBuilder record;
  const Both read = both(record);
  expect_same(read);
  EXPECT_TRUE(read.slim.threads.empty());
}

TEST_F(Slim, keeps_the_last_128_ends_and_begins_of_collectives_and_all_open_ones) {
  RecordBuilder record({.collectives = 512, .open = 8});
  fill_record(record);
  for (std::uint64_t number = 3; number < 200; ++number) {
    record.collective(Phase::kBegin, number);
    record.collective(Phase::kEnd, number);
  }
  record.open_collective(2, 200);
  expect_same(both(record));
  const RecordFile slim(slim_path_);
  EXPECT_EQ(slim.collectives().count, 128U);
  EXPECT_EQ(read_collectives(slim).list.size(), 128U);
  EXPECT_EQ(read_collectives(slim).list.back().number, 199U);
  EXPECT_EQ(read_open_collectives(slim).size(), 2U);  // the first one began long ago
  const auto all = read_joined_collectives(RecordFile(path_));
  const auto last = read_joined_collectives(slim);
  for (std::size_t i = 1; i <= 64; ++i) expect_same(all[all.size() - i], last[last.size() - i]);
}

TEST_F(Slim, keeps_the_last_step_and_open_sections_however_many_marks_came_later) {
  RecordBuilder record({.marks = 256});
  fill_record(record);
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
  RecordBuilder record;
  fill_record(record);
  record.code(7, "in_a_stack", 1, 90).now = LevelNow::of(Level::kWhere, 5000).bits;
  record.code(8, "elsewhere", 1, 95).now = LevelNow::of(Level::kOff, 6000).bits;
  record.code(9, "raised_again", 1, 99).now = LevelNow::of(Level::kCalls, 7000).bits;
  const Place places[] = {Place::of(7, kNoPosition, kOfLine)};
  record.thread(1, "limited", places);
  const Both read = both(record);
  expect_same(read);
  ASSERT_EQ(read.slim.lowered.size(), 2U);
  EXPECT_EQ(read.slim.lowered[1].frame.function, "elsewhere");
  EXPECT_EQ(read.slim.threads[1].stack[0].now.level(), Level::kWhere);
}

TEST_F(Slim, has_lines_without_line_tables) {
  RecordBuilder record;
  fill_record(record);
  record.header().python = 0x030b07f0;
  // One entry of 3.11: two units at one line below the first.
  record.code(7, "offsets", 1, 90, std::string_view("\xe9\x02\x80\x00", 4).substr(0, 2));
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
  RecordBuilder record;
  fill_record(record);
  const std::uint64_t ended = static_cast<std::uint64_t>(ThreadState::kEnded) | std::uint64_t{1}
                                                                                    << 32;
  record.header().pid = 100;  // the first thread is the main one
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
  RecordBuilder record({.ring_events = 256});
  fill_record(record);
  record.header().pid = 100;
  record.slot(0).depth = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) record.event(0, 200 + i, Place::of(2, 7, kOfLine));
  slim_of(record);
  const History whole = read_history(path_, 100), slim = read_history(slim_path_, 100);
  ASSERT_EQ(whole.events.size(), slim.events.size());
  for (std::size_t i = 0; i < slim.events.size(); ++i) {
    EXPECT_EQ(whole.events[i].tsc, slim.events[i].tsc);
    EXPECT_EQ(whole.events[i].kind, slim.events[i].kind);
    expect_same(whole.events[i].frame, slim.events[i].frame);
  }
}

TEST_F(Slim, of_a_slim_record_is_the_same) {
  RecordBuilder record;
  fill_record(record);
  const std::string first = slim_of(record);
  EXPECT_EQ(slim_record(RecordFile(slim_path_)).size(), first.size());
}

TEST_F(Slim, stays_below_its_limit_with_many_deep_threads_and_long_names) {
  RecordBuilder record({.dictionary = 4 << 20,
                        .threads = 600,
                        .stack_room = 200,
                        .marks = 1024,
                        .collectives = 4096,
                        .open = 600,
                        .groups = 4096});
  fill_record(record);
  const std::string name(4000, 'n');
  std::vector<Place> stack;
  for (std::uint32_t i = 0; i < 200; ++i) {
    record.code(100 + i, name + std::to_string(i), 1, 1);
    stack.push_back(Place::of(100 + i, i, kOfLine));
  }
  record.header().pid = 100 + 599;
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
  const ThreadNow& main = read.slim.threads.back();
  EXPECT_EQ(main.thread.tid, 699U);
  EXPECT_EQ(main.thread.depth, 200U);
  EXPECT_TRUE(main.thread.cut);
  EXPECT_EQ(main.stack.back().line, 199U);  // the innermost frame
  EXPECT_EQ(read.slim.counters.lost_groups, 4096U - 512U);
}

TEST_F(Slim, of_a_broken_record_is_a_good_one) {
  RecordBuilder record;
  fill_record(record);
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
