// The sink that _core offers to _torch: a table of functions, and the records they write.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trace/format/format.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/file.hpp"
#include "trace/read/records.hpp"
#include "trace/torch/collectives.hpp"
#include "trace/write/recorder.hpp"

namespace oddrank::trace {
namespace {

using State = Collective::State;

// A record in memory whose recorder is never destroyed, as in a process.
struct Record {
  explicit Record(std::size_t bytes = kRankBytes) : file(::memfd_create("record", MFD_CLOEXEC)) {
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) std::abort();
    recorder = new Recorder(file, bytes, {});
  }
  RecordFile open() const { return RecordFile(Fd(::dup(file.get())), "of the test"); }
  std::vector<Collective> read() const { return read_joined_collectives(open()); }

  Fd file;
  Recorder* recorder = nullptr;
};

Recorder* armed = nullptr;
const CollectiveSink& sink() {
  return recording_sink([]() noexcept { return armed; });
}

CollectiveCall call(std::string_view group, std::string_view op, std::uint64_t bytes = 8) {
  return {.group = {.name = group}, .operation = op, .bytes = bytes, .tid = 77, .type = 6};
}

TEST(Sink, WritesBeginNumberAndEndWithTheirNames) {
  const Record record;
  armed = record.recorder;
  const std::uint64_t ticket = sink().begin(call("7", "allreduce_", 4096));
  ASSERT_NE(ticket, 0U);
  Collective open = record.read().at(0);
  EXPECT_EQ(open.state, State::kOpen);
  EXPECT_EQ(open.sequence, std::nullopt);
  sink().numbered(ticket, 41);
  open = record.read().at(0);
  EXPECT_EQ(open.state, State::kOpen);
  EXPECT_EQ(open.sequence, 41U);
  sink().end(ticket);
  const Collective ended = record.read().at(0);
  EXPECT_EQ(ended.state, State::kEnded);
  EXPECT_EQ(ended.sequence, 41U);
  EXPECT_EQ(ended.bytes, 4096U);
  EXPECT_EQ(ended.tid, 77U);
  EXPECT_EQ(ended.data_type, 6U);
  EXPECT_LE(ended.begin, ended.end);
  const Dictionary names(record.open());
  EXPECT_EQ(names.group_name(ended.group), "7");
  EXPECT_EQ(names.operation(ended.operation), "allreduce_");
}

TEST(Sink, WritesWhatIsSentToWhomAndBothSides) {
  const Record record;
  armed = record.recorder;
  const auto last = [&](const CollectiveCall& one) {
    sink().end(sink().begin(one));
    return record.read().back();
  };
  CollectiveCall one = call("0", "send", 12);
  one.role = Role::kSend;
  one.side = Side::kInput;
  one.partner = 3;
  one.other = 9;
  const Collective send = last(one);
  EXPECT_EQ(send.partner, 3U);
  EXPECT_EQ(send.other, 9U);
  EXPECT_EQ(send.input(), 12U);
  EXPECT_EQ(send.output(), 0U);
  one.role = Role::kRecv;
  one.side = Side::kOutput;
  EXPECT_EQ(last(one).input(), 0U);
  EXPECT_EQ(last(one).output(), 12U);
  one = call("0", "_allgather_base_", 12);
  one.side = Side::kInput;
  one.other = 48;
  EXPECT_EQ(last(one).input(), 12U);
  EXPECT_EQ(last(one).output(), 48U);
  EXPECT_EQ(last(one).partner, kNoRank);
  one.side = Side::kOutput;
  one.role = Role::kRoot;
  EXPECT_EQ(last(one).input(), 48U);
  EXPECT_EQ(last(one).output(), 12U);
  const Collective both = last(call("0", "allreduce_", 12));
  EXPECT_EQ(both.input(), 12U);
  EXPECT_EQ(both.output(), 12U);
  EXPECT_EQ(name_of_type(both.data_type), "float32");
  EXPECT_EQ(name_of_type(kNoType), "");
}

TEST(Sink, TellsWhatADeviceGoesOnWithFromWhatHasEnded) {
  const Record record;
  armed = record.recorder;
  const std::uint64_t ticket = sink().begin(call("0", "allreduce_"));
  sink().numbered(ticket, 3);
  sink().issued(ticket);
  const Collective issued = record.read().at(0);
  EXPECT_EQ(issued.state, State::kIssued);
  EXPECT_EQ(issued.sequence, 3U);
  EXPECT_EQ(issued.end, std::nullopt);
  EXPECT_TRUE(read_open_collectives(record.open()).empty());
}

TEST(Sink, AnErrorIsAnEndThatFailed) {
  const Record record;
  armed = record.recorder;
  const std::uint64_t ticket = sink().begin(call("0", "allreduce_"));
  sink().numbered(ticket, 3);
  sink().failed(ticket);
  const Collective failed = record.read().at(0);
  EXPECT_EQ(failed.state, State::kEnded);
  EXPECT_TRUE(failed.failed);
  EXPECT_TRUE(failed.end.has_value());
  EXPECT_EQ(read_progress(record.open()).at(0).issued, 3U);
  EXPECT_EQ(read_progress(record.open()).at(0).ended, 0U);
  sink().end(sink().begin(call("0", "allreduce_")));
  EXPECT_FALSE(record.read().at(1).failed);
}

TEST(Sink, RecordsNothingWhereNobodyIsArmed) {
  armed = nullptr;
  EXPECT_EQ(sink().begin(call("0", "barrier")), 0U);
}

TEST(Sink, WhatOneRecorderHasBegunAnotherDoesNotEnd) {
  const Record first, second;
  armed = first.recorder;
  const std::uint64_t of_first = sink().begin(call("0", "send"));
  armed = second.recorder;
  const std::uint64_t of_second = sink().begin(call("group", "recv_"));
  sink().end(of_first);
  EXPECT_EQ(first.read().at(0).state, State::kEnded);
  EXPECT_EQ(second.read().at(0).state, State::kOpen);
  EXPECT_EQ(Dictionary(second.open()).operation(1), "recv_");
  sink().end(of_second);
  EXPECT_EQ(second.read().at(0).state, State::kEnded);
}

TEST(Sink, AForkedChildEndsNothingOfItsParent) {
  const Record parent;
  armed = parent.recorder;
  const std::uint64_t ticket = sink().begin(call("0", "recv_"));
  const pid_t child = ::fork();
  if (child == 0) {
    const Record own;
    armed = own.recorder;
    sink().end(ticket);
    const std::uint64_t new_ticket = sink().begin(call("0", "send"));
    sink().numbered(ticket, 9);
    sink().end(ticket);
    const bool right = new_ticket != ticket && own.read().at(0).state == State::kOpen;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(parent.read().size(), 1U);
  EXPECT_EQ(parent.read()[0].state, State::kOpen);
  EXPECT_EQ(parent.read()[0].sequence, std::nullopt);
  sink().end(ticket);
  EXPECT_EQ(parent.read()[0].state, State::kEnded);
}

TEST(Sink, OfManyThreadsAndEndsElsewhereNothingStaysOpen) {
  const Record record;
  armed = record.recorder;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const std::string group = "group " + std::to_string(t);
      for (std::uint64_t i = 0; i < 20'000; ++i) {
        const std::uint64_t ticket = sink().begin(call(group, "allreduce_"));
        sink().numbered(ticket, i);
        sink().end(ticket);
      }
    });
  }
  threads.clear();
  EXPECT_TRUE(read_open_collectives(record.open()).empty());
  EXPECT_EQ(record.open().counters().lost_collectives, 0U);
  EXPECT_EQ(record.open().counters().collectives_claimed, 160'000U);
  EXPECT_TRUE(Clock(record.open().clocks()).realtime_ns(read_tsc()).has_value());
  EXPECT_EQ(Dictionary(record.open()).entries(), 5U) << "names are written once";
}

// A back end's counter as gloo has it, and the number that a record gives an operation.
struct Counter {
  std::uint64_t begin(std::string_view op, Role role = Role::kNone) const {
    CollectiveCall one = call("0", op);
    one.count = count;
    one.role = role;
    one.partner = 1;
    return sink().begin(one);
  }
  void end(std::uint64_t ticket, std::uint64_t steps = 1, bool is_issued = true) {
    count += steps;
    sink().counted(ticket, count, is_issued);
    sink().end(ticket);
  }
  std::uint64_t count = 0;
};

TEST(Sink, NumbersCollectivesAloneWhereTheBackEndCountsMessagesToo) {
  const Record record;
  armed = record.recorder;
  Counter gloo;
  const auto number = [&] { return record.read().back().sequence; };
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(number(), 1U);
  gloo.end(gloo.begin("send", Role::kSend), 1, false);
  gloo.end(gloo.begin("recv_", Role::kRecv), 1, false);
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(number(), 2U);
  // Its messages, which nobody sees, are counted: more of them on rank 0 than elsewhere.
  gloo.end(gloo.begin("monitored_barrier_"), 6);
  EXPECT_EQ(number(), 3U);
  gloo.end(gloo.begin("allreduce_"), 0, false);
  EXPECT_EQ(number(), std::nullopt) << "it raised an error";
  const std::uint64_t open = gloo.begin("allreduce_");
  EXPECT_EQ(number(), std::nullopt) << "not issued yet";
  gloo.end(open);
  EXPECT_EQ(number(), 4U);
  const GroupProgress progress = read_progress(record.open()).at(0);
  EXPECT_EQ(progress.issued, 4U);
  EXPECT_EQ(progress.ended, 4U);
}

TEST(Sink, NumbersGoOnAfterWhatNobodyRecorded) {
  const Record record;
  armed = record.recorder;
  Counter gloo{.count = 10};
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(record.read().back().sequence, 11U);
  gloo.count += 5;
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(record.read().back().sequence, 17U);
  // Another thread issues one between another's begin and end: it is not missed.
  const std::uint64_t slow = gloo.begin("send", Role::kSend);
  ++gloo.count;
  gloo.end(gloo.begin("allreduce_"));
  gloo.end(slow, 0, false);
  EXPECT_EQ(record.read().back().sequence, 18U);
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(record.read().back().sequence, 19U);
}

TEST(Sink, NumbersAlsoThoseThatTheTableOfOpenOnesHasNoRoomFor) {
  const Record record;
  armed = record.recorder;
  Counter gloo;
  std::vector<std::uint64_t> open;
  for (int i = 0; i < 100; ++i) {
    open.push_back(gloo.begin("allreduce_"));
    sink().counted(open.back(), ++gloo.count, true);
  }
  for (const std::uint64_t ticket : open) sink().end(ticket);
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(record.read().back().sequence, 101U);
}

TEST(Sink, SaysOfHowManyGroupsNoProgressIsKept) {
  const Record record(kChildBytes);
  armed = record.recorder;
  const std::uint32_t slots = record.recorder->header().groups.count;
  for (std::uint32_t i = 1; i <= slots; ++i) sink().begin(call(std::to_string(i), "allreduce_"));
  EXPECT_EQ(record.open().counters().lost_groups, 0U);
  for (const char* name : {"one", "another", "one"}) sink().begin(call(name, "allreduce_"));
  EXPECT_EQ(record.open().counters().lost_groups, 2U);
  CollectiveCall send = call("a third", "send");
  send.role = Role::kSend;
  sink().begin(send);
  EXPECT_EQ(record.open().counters().lost_groups, 2U) << "messages have no progress to keep";
}

TEST(Sink, AGroupWhoseRanksHaveNoRoomKeepsItsNameAndOneWithoutAnyIsCounted) {
  const Record record(kFewestBytes);
  armed = record.recorder;
  std::vector<std::uint64_t> ranks;  // 450 runs
  for (std::uint64_t i = 0; i < 900; ++i) ranks.push_back(i * i);
  const auto begin = [&](const std::string& name) {
    CollectiveCall one = call(name, "allreduce_");
    one.group.ranks = ranks;
    one.group.size = 900;
    sink().end(sink().begin(one));
  };
  std::uint32_t most = 0;
  while (record.open().counters().lost_groups == 0) begin("group " + std::to_string(most++));
  const Dictionary names(record.open());
  const std::size_t with_ranks =
      std::ranges::count_if(names.groups(), [](const auto& one) { return !one.runs.empty(); });
  EXPECT_EQ(with_ranks, 5U);
  EXPECT_EQ(names.groups().size(), record.recorder->header().groups.count + 1);
  EXPECT_EQ(names.groups().back().size, 900U);
}

TEST(Sink, GroupsAndOperationsHaveNamesWhereCodeHasFilledTheDictionary) {
  const Record record;
  armed = record.recorder;
  std::uint32_t line = 0;
  while (record.recorder->dictionary().add_code(
             {.name = "f", .file = "train.py", .linetable = {}, .first_line = ++line}) != 0) {
  }
  for (int i = 0; i < 300; ++i) sink().begin(call("group " + std::to_string(i), "allgather_"));
  sink().begin(call("the group", "allreduce_"));
  const Collective open = record.read().back();
  EXPECT_EQ(Dictionary(record.open()).group_name(open.group), "the group");
  EXPECT_EQ(Dictionary(record.open()).operation(open.operation), "allreduce_");
}

}  // namespace
}  // namespace oddrank::trace
