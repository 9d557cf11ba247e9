// Each launcher's prefix: what it says, and where the line's own text begins.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "logs/prefixes.hpp"

namespace oddrank::logs {
namespace {

struct Expected {
  std::string_view line;
  std::string_view text;
  std::int64_t rank = -1;
  std::int64_t local_rank = -1;
  std::int64_t task = -1;
  std::int64_t host_number = -1;
  std::int64_t pid = -1;
  std::string_view host = "";
  std::string_view pod = "";
};

void check(const Expected& expected) {
  SCOPED_TRACE(std::string(expected.line));
  const Prefix who = find_prefix_behind_bar(expected.line);
  EXPECT_EQ(expected.line.substr(who.text), expected.text);
  EXPECT_EQ(who.rank, expected.rank);
  EXPECT_EQ(who.local_rank, expected.local_rank);
  EXPECT_EQ(who.task, expected.task);
  EXPECT_EQ(who.host_number, expected.host_number);
  EXPECT_EQ(who.pid, expected.pid);
  EXPECT_EQ(who.host, expected.host);
  EXPECT_EQ(who.pod, expected.pod);
}

TEST(Prefixes, TorchrunNamesTheLocalRank) {
  check({.line = "[default3]:loss 1.0", .text = "loss 1.0", .local_rank = 3});
  check({.line = "[worker3]: x", .text = "x", .local_rank = 3});
  check({.line = "[default3|11]:x", .text = "x", .rank = 11, .local_rank = 3});
  check({.line = "[node7:3]:x", .text = "x", .local_rank = 3, .host = "node7"});
  check({.line = "[worker/node7:3]:x", .text = "x", .local_rank = 3, .host = "node7"});
  check({.line = "[11]:x", .text = "x", .task = 11});
}

TEST(Prefixes, TorchNamesTheGlobalRank) {
  check({.line = "[rank9]:[E129 16:38:47.7 a.cpp:1] [Rank 1] x",
         .text = "[E129 16:38:47.7 a.cpp:1] [Rank 1] x",
         .rank = 9});
  check({.line = "[rank: 3] Seed set", .text = "Seed set", .rank = 3});
  check({.line = "rank3: x", .text = "x", .rank = 3});
}

TEST(Prefixes, OddrankRunNamesHostAndRank) {
  check({.line = "[node7.a-b:rank12]  x", .text = " x", .rank = 12, .host = "node7.a-b"});
  check({.line = "3: [n:rank12] x", .text = "x", .rank = 12, .task = 3, .host = "n"});
  for (const std::string_view other : {"[n:rank12]x", "[n:rank] x", "[:rank1] x", "[n:rank1x] x"}) {
    EXPECT_EQ(find_prefix(other).rank, -1) << other;
  }
}

TEST(Prefixes, SrunAndMpirunNumberTheirTasks) {
  check({.line = "12: x", .text = "x", .task = 12});
  check({.line = "  3: x", .text = "x", .task = 3});
  check({.line = "12:", .text = "", .task = 12});
  check({.line = "[1,3]<stdout>:x", .text = "x", .task = 3});
  check({.line = "[1,3]<stderr>:  x", .text = "  x", .task = 3});
  check({.line = "[1,mpirank:3,algo-2]<stderr>:x", .text = "x", .task = 3, .host = "algo-2"});
  check({.line = "[2026-11-23T03:00:01.5Z] 1a2b3c4d [rank=3] ||   x", .text = "  x", .rank = 3});
  check({.line = "[2026-11-23T03:00:01.5Z]          || x", .text = "x"});
  check({.line = "[2026-11-23 03:00:01] a [rank=3] || x",
         .text = "[2026-11-23 03:00:01] a [rank=3] || x"});
  check({.line = "2026-11-23T03:00:01.5Z stderr F 7:   x", .text = "  x", .task = 7});
  check({.line = "[prterun-node7-99@1,3]<stderr>: x", .text = "x", .task = 3});
  check({.line = "[node7:12345] *** Process received signal ***",
         .text = "*** Process received signal ***",
         .pid = 12345,
         .host = "node7"});
}

TEST(Prefixes, HostsPodsAndProcessesAreNamed) {
  check({.line = "node7: x", .text = "x", .host = "node7"});
  check({.line = "10.0.0.7: x", .text = "x", .host = "10.0.0.7"});
  check({.line = "node7:3: x", .text = "x", .host_number = 3, .host = "node7"});
  check(
      {.line = "node7:99:101 [3] NCCL WARN x", .text = "NCCL WARN x", .pid = 99, .host = "node7"});
  check({.line = "[pod/train-worker-3/pytorch] x", .text = "x", .pod = "train-worker-3"});
  check({.line = "train-worker-3  | x", .text = "x", .pod = "train-worker-3"});
  check({.line = "Apr 19 10:42:28 node7 train[123]: x", .text = "x", .pid = 123, .host = "node7"});
  check({.line = "2026-09-02T15:29:45.3372976Z x", .text = "x"});
  check({.line = "2026-09-02 15:29:45,337 [rank3]: x", .text = "x", .rank = 3});
  check({.line = "2026-09-02 15:29:45,337 [INFO] x", .text = "2026-09-02 15:29:45,337 [INFO] x"});
}

TEST(Prefixes, NamesOfHostsAreToldFromWordsWithNumbers) {
  for (const std::string_view name : {"gpu07", "gpu-node-12", "h100-042", "test-gpu3", "int-gpu01",
                                      "DGX-07", "node_7", "NODE-7", "rack1.node7", "ip-10-0-0-7"}) {
    const std::string line = std::string(name) + ": x";
    check({.line = line, .text = "x", .host = name});
  }
  check({.line = "gpu07:3: x", .text = "x", .host_number = 3, .host = "gpu07"});
  check({.line = "localhost:3: x", .text = "x", .host_number = 3, .host = "localhost"});
  for (const std::string_view line :
       {"gpu0: 45C", "step12: x", "Epoch_3: x", "epoch-3: x", "conv1: 0.3", "attn2: nan",
        "model.layers.0.mlp: nan", "0.5: x", "python3.11: x", "layer1.py:12: UserWarning: x",
        "step-time | 0.3", "10:42:28 [0] INFO step", "2026-09-02T15:29:45 [3] INFO x"}) {
    SCOPED_TRACE(std::string(line));
    EXPECT_TRUE(find_prefix(line).empty());
  }
}

TEST(Prefixes, WhatStandsBeforeAPrefixIsSkipped) {
  check({.line = "\xef\xbb\xbf[rank3]: x", .text = "x", .rank = 3});
  check({.line = "Mon Nov 23 15:00:00 2026[1,3]<stdout>:x", .text = "x", .task = 3});
}

TEST(Prefixes, RayNamesRankPidAndAddress) {
  check({.line = "(Policy[rank=9] pid=3098846, ip=10.65.5.217) x",
         .text = "x",
         .rank = 9,
         .pid = 3098846,
         .host = "10.65.5.217"});
  check({.line = "\x1b[36m(Worker pid=12)\x1b[0m x", .text = "x", .pid = 12});
  check({.line = "[36m(Worker pid=12)[0m x", .text = "x", .pid = 12});
  check({.line = "(pid=12, ip=10.0.0.2) x", .text = "x", .pid = 12, .host = "10.0.0.2"});
  const Prefix who = find_prefix_behind_bar("(W pid=1) hello [repeated 15x across cluster]");
  EXPECT_TRUE(who.repeated);
}

TEST(Prefixes, SeveralAreNested) {
  check({.line = "node7: 12: [default3]:[rank99]: Traceback",
         .text = "Traceback",
         .rank = 99,
         .local_rank = 3,
         .task = 12,
         .host = "node7"});
  check({.line = "[default3]:  File \"a.py\", line 1",
         .text = " File \"a.py\", line 1",
         .local_rank = 3});
}

TEST(Prefixes, AProgressBarIsNoPartOfTheLine) {
  check({.line = "1021/100000 [45:39<51:20:53,  1.87s/it][rank2]:[E723 x",
         .text = "[E723 x",
         .rank = 2});
  check({.line = "  5%|#  | 5/99 [00:01<00:20,  4.5it/s, loss=0.3] [rank2]: x",
         .text = " [rank2]: x"});
}

TEST(Prefixes, PlainLinesHaveNone) {
  for (const std::string_view line :
       {"ValueError: x", "step3: loss",
        "Traceback (most recent call last):", "  File \"a\", line 3",
        "[0]:", "[2026-01-01 00:00:00,123] x", "srun: error: node7: task 3: Killed", "[", "(", "",
        "[rank", "12", "torch2: x", "RuntimeError: [1] is setting up", "(hello) x"}) {
    SCOPED_TRACE(std::string(line));
    const Prefix who = find_prefix(line);
    EXPECT_TRUE(who.empty());
    EXPECT_EQ(who.text, 0U);
  }
}

TEST(Prefixes, ATornLineHasSeveralWriters) {
  const std::string_view line = "[rank3]:[E1 a] Watchdog cau[rank7]:[E1 a] Watchdog caught";
  const std::size_t torn = next_torn(line, 8);
  EXPECT_EQ(find_prefix(line.substr(torn)).rank, 7);
  EXPECT_EQ(next_torn("[rank]: [ranks] [rank3] [1,x]<stdout>: [1]: [1,2]<st", 0),
            std::string_view::npos);
  EXPECT_EQ(next_torn("[1,0]<stdout>:a[1,3]<stderr>:b", 14), 15U);
}

}  // namespace
}  // namespace oddrank::logs
