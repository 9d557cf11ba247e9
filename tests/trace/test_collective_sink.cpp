// The sink that _core offers to _torch: a table of functions, and the records they write.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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
  Record() : file(::memfd_create("record", MFD_CLOEXEC)) {
    if (::ftruncate(file.get(), kRankBytes) != 0) std::abort();
    recorder = new Recorder(file, kRankBytes, {});
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

TEST(Sink, GroupsAndOperationsHaveNamesWhereCodeHasFilledTheDictionary) {
  const Record record;
  armed = record.recorder;
  std::uint32_t line = 0;
  while (record.recorder->dictionary().add_code(
             {.name = "f", .file = "train.py", .linetable = {}, .first_line = ++line}) != 0) {
  }
  sink().begin(call("the group", "allreduce_"));
  const Collective open = record.read().at(0);
  EXPECT_EQ(Dictionary(record.open()).group_name(open.group), "the group");
}

}  // namespace
}  // namespace oddrank::trace
