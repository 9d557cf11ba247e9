// The sink that _core offers to _torch: a table of functions, and the records they write.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "../words.hpp"
#include "recording.hpp"
#include "trace/format/format.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/records.hpp"
#include "trace/torch/collectives.hpp"
#include "trace/write/recorder.hpp"

namespace oddrank::trace {
namespace {

using State = Collective::State;

// A record that is the process's own from now on: its recorder is never destroyed.
struct Record : Recording {
  explicit Record(std::size_t size = kRankBytes);
  ~Record() {
    static auto& kept = *new std::vector<Recorder*>;  // no leak
    kept.push_back(recorder.release());
  }
  std::vector<Collective> read() const { return read_joined_collectives(open()); }
};

Recorder* armed = nullptr;
Record::Record(std::size_t size) : Recording(size) { armed = recorder.get(); }
const CollectiveSink& sink() {
  return recording_sink([]() noexcept { return armed; });
}

CollectiveCall call(std::string_view group, std::string_view op, std::uint64_t bytes = 8) {
  return {
      .group = {.name = group}, .operation = op, .facts = {.bytes = bytes, .type = 6, .tid = 77}};
}

TEST(Sink, WritesBeginNumberAndEndWithTheirNames) {
  const struct {
    Phase phase;
    State state;
    bool failed;
    std::uint64_t ended;
  } rows[] = {{Phase::kEnd, State::kEnded, false, 41},
              {Phase::kFailed, State::kEnded, true, 0},
              {Phase::kIssued, State::kIssued, false, 0}};  // a device goes on with it
  for (const auto& row : rows) {
    const Record record;
    const std::uint64_t ticket = sink().begin(call("7", "allreduce_", 4096));
    ASSERT_NE(ticket, 0U);
    const auto all = [&record] {
      return each(record.read(), &Collective::state, &Collective::known_sequence,
                  &Collective::failed);
    };
    EXPECT_EQ(all(), words(State::kOpen, std::nullopt, false));
    EXPECT_EQ(read_open_collectives(record.open()).size(), 1U);
    sink().numbered(ticket, 41);
    EXPECT_EQ(all(), words(State::kOpen, 41, false));
    sink().closed(ticket, row.phase);
    sink().numbered(ticket, 99);  // too late: ignored
    EXPECT_EQ(all(), words(row.state, 41, row.failed));
    EXPECT_TRUE(read_open_collectives(record.open()).empty());
    const Collective ended = record.read().at(0);
    EXPECT_EQ(words(ended.bytes, ended.tid, ended.type), "4096 77 6");
    EXPECT_EQ(ended.end.has_value(), row.state == State::kEnded);
    EXPECT_LE(ended.begin, ended.end.value_or(~std::uint64_t{0}));
    const Dictionary names(record.open());
    EXPECT_EQ(words(names.group_name(ended.group), names.operation(ended.operation)),
              "7 allreduce_");
    const GroupProgress progress = read_progress(record.open()).at(0);
    EXPECT_EQ(words(progress.issued, progress.ended), words(41, row.ended));
    EXPECT_GT(progress.last, 0U);
    sink().closed(sink().begin(call("7", "allreduce_")), Phase::kEnd);
    EXPECT_FALSE(record.read().at(1).failed);
  }
}

TEST(Sink, AForkedChildEndsNothingOfItsParent) {
  const Record parent;
  const std::uint64_t ticket = sink().begin(call("0", "recv_"));
  const pid_t child = ::fork();
  if (child == 0) {
    const Record own;
    sink().closed(ticket, Phase::kEnd);
    const std::uint64_t new_ticket = sink().begin(call("0", "send"));
    sink().numbered(ticket, 9);
    sink().closed(ticket, Phase::kEnd);
    const bool right = new_ticket != ticket && own.read().at(0).state == State::kOpen;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(each(parent.read(), &Collective::state, &Collective::known_sequence),
            words(State::kOpen, std::nullopt));
  sink().closed(ticket, Phase::kEnd);
  EXPECT_EQ(parent.read()[0].state, State::kEnded);
}

TEST(Sink, OfManyThreadsAndEndsElsewhereNothingStaysOpen) {
  const Record record;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      const std::string group = "group " + std::to_string(t);
      for (std::uint64_t i = 0; i < 20'000; ++i) {
        const std::uint64_t ticket = sink().begin(call(group, "allreduce_"));
        sink().numbered(ticket, i);
        sink().closed(ticket, Phase::kEnd);
      }
    });
  }
  threads.clear();
  EXPECT_TRUE(read_open_collectives(record.open()).empty());
  EXPECT_EQ(record.open().header()->lost_collectives, 0U);
  EXPECT_EQ(record.open().header()->collectives_claimed, 160'000U);
  EXPECT_TRUE(Clock(record.open().clocks()).realtime_ns(read_tsc()).has_value());
  EXPECT_EQ(Dictionary(record.open()).entries(), 5U) << "names are written once";
}

// A back end's counter as gloo has it, and the number that a record gives an operation.
struct Counter {
  std::uint64_t begin(std::string_view op, Role role = Role::kNone) const {
    CollectiveCall one = call("0", op);
    one.count = count;
    one.facts.role = role;
    one.facts.partner = 1;
    return sink().begin(one);
  }
  void end(std::uint64_t ticket, std::uint64_t steps = 1, bool is_issued = true) {
    count += steps;
    sink().counted(ticket, count, is_issued);
    sink().closed(ticket, Phase::kEnd);
  }
  std::uint64_t count = 0;
};

TEST(Sink, NumbersCollectivesAloneWhereTheBackEndCountsMessagesToo) {
  const Record record;
  Counter gloo;
  const auto number = [&] { return record.read().back().known_sequence(); };
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
  EXPECT_EQ(each(read_progress(record.open()), &GroupProgress::issued, &GroupProgress::ended),
            "4 4");
}

TEST(Sink, NumbersGoOnAfterWhatNobodyRecorded) {
  const Record record;
  Counter gloo{.count = 10};
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(record.read().back().known_sequence(), 11U);
  gloo.count += 5;
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(record.read().back().known_sequence(), 17U);
  // Another thread issues one between another's begin and end: it is not missed.
  const std::uint64_t slow = gloo.begin("send", Role::kSend);
  ++gloo.count;
  gloo.end(gloo.begin("allreduce_"));
  gloo.end(slow, 0, false);
  EXPECT_EQ(record.read().back().known_sequence(), 18U);
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(record.read().back().known_sequence(), 19U);
  // Also after more than the table of open ones has room for.
  std::vector<std::uint64_t> open;
  for (int i = 0; i < 100; ++i) {
    open.push_back(gloo.begin("allreduce_"));
    sink().counted(open.back(), ++gloo.count, true);
  }
  for (const std::uint64_t ticket : open) sink().closed(ticket, Phase::kEnd);
  gloo.end(gloo.begin("allreduce_"));
  EXPECT_EQ(record.read().back().known_sequence(), 120U);
}

TEST(Sink, SaysOfHowManyGroupsNoProgressIsKept) {
  const Record record(kChildBytes);
  const std::uint32_t slots = record->header().groups.count;
  for (std::uint32_t i = 1; i <= slots; ++i) sink().begin(call(std::to_string(i), "allreduce_"));
  EXPECT_EQ(record.open().header()->lost_groups, 0U);
  for (const char* name : {"one", "another", "one"}) sink().begin(call(name, "allreduce_"));
  EXPECT_EQ(record.open().header()->lost_groups, 2U);
  CollectiveCall send = call("a third", "send");
  send.facts.role = Role::kSend;
  sink().begin(send);
  EXPECT_EQ(record.open().header()->lost_groups, 2U) << "messages have no progress to keep";
}

TEST(Sink, AGroupWhoseRanksHaveNoRoomKeepsItsNameAndOneWithoutAnyIsCounted) {
  const Record record(kFewestBytes);
  std::vector<std::uint64_t> ranks;  // 450 runs
  for (std::uint64_t i = 0; i < 900; ++i) ranks.push_back(i * i);
  const auto begin = [&](const std::string& name) {
    CollectiveCall one = call(name, "allreduce_");
    one.group.ranks = ranks;
    one.group.size = 900;
    sink().closed(sink().begin(one), Phase::kEnd);
  };
  std::uint32_t most = 0;
  while (record.open().header()->lost_groups == 0) begin("group " + std::to_string(most++));
  const Dictionary names(record.open());
  const std::size_t with_ranks =
      std::ranges::count_if(names.groups(), [](const auto& one) { return !one.runs.empty(); });
  EXPECT_EQ(with_ranks, 5U);
  EXPECT_EQ(names.groups().size(), record->header().groups.count + 1);
  EXPECT_EQ(names.groups().back().size, 900U);
}

TEST(Sink, GroupsAndOperationsHaveNamesWhereCodeHasFilledTheDictionary) {
  const Record record;
  std::uint32_t line = 0;
  while (record->dictionary().add_code(
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
