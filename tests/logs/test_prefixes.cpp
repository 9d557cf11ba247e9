// Each launcher's prefix: what it says, and where the line's own text begins.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "../words.hpp"
#include "logs/prefixes.hpp"

namespace oddrank::logs {
namespace {

// What a line's prefixes say, as "rank=3 host=n | text"; what they do not say is left out.
std::string shown(std::string_view line) {
  const Prefix who = find_prefix_behind_bar(line);
  std::string said;
  const auto say = [&said](const char* name, const auto& value, bool known) {
    if (known) said += std::string(name) + "=" + words(value) + " ";
  };
  say("rank", who.rank, who.rank != -1);
  say("local", who.local_rank, who.local_rank != -1);
  say("task", who.task, who.task != -1);
  say("number", who.host_number, who.host_number != -1);
  say("pid", who.pid, who.pid != -1);
  say("host", who.host, !who.host.empty());
  say("pod", who.pod, !who.pod.empty());
  return said + "| " + std::string(line.substr(who.text));
}

TEST(Prefixes, SayWhoWroteALineAndWhereItsTextBegins) {
  const struct {
    std::string_view line, shown;
  } rows[] = {
      // torchrun names the local rank, torch the global one, oddrank run the host, too.
      {"[default3]:loss 1.0", "local=3 | loss 1.0"},
      {"[worker3]: x", "local=3 | x"},
      {"[default3|11]:x", "rank=11 local=3 | x"},
      {"[node7:3]:x", "local=3 host=node7 | x"},
      {"[worker/node7:3]:x", "local=3 host=node7 | x"},
      {"[11]:x", "task=11 | x"},
      {"[rank9]:[E129 16:38:47.7 a.cpp:1] [Rank 1] x",
       "rank=9 | [E129 16:38:47.7 a.cpp:1] [Rank 1] x"},
      {"[rank: 3] Seed set", "rank=3 | Seed set"},
      {"rank3: x", "rank=3 | x"},
      {"[node7.a-b:rank12]  x", "rank=12 host=node7.a-b |  x"},
      {"3: [n:rank12] x", "rank=12 task=3 host=n | x"},
      // srun and mpirun number their tasks.
      {"12: x", "task=12 | x"},
      {"  3: x", "task=3 | x"},
      {"12:", "task=12 | "},
      {"[1,3]<stdout>:x", "task=3 | x"},
      {"[1,3]<stderr>:  x", "task=3 |   x"},
      {"[1,mpirank:3,algo-2]<stderr>:x", "task=3 host=algo-2 | x"},
      {"[2026-11-23T03:00:01.5Z] 1a2b3c4d [rank=3] ||   x", "rank=3 |   x"},
      {"[2026-11-23T03:00:01.5Z]          || x", "| x"},
      {"[2026-11-23 03:00:01] a [rank=3] || x", "| [2026-11-23 03:00:01] a [rank=3] || x"},
      {"2026-11-23T03:00:01.5Z stderr F 7:   x", "task=7 |   x"},
      {"[prterun-node7-99@1,3]<stderr>: x", "task=3 | x"},
      {"[node7:12345] *** Process received signal ***",
       "pid=12345 host=node7 | *** Process received signal ***"},
      // Hosts, pods and processes are named.
      {"node7: x", "host=node7 | x"},
      {"10.0.0.7: x", "host=10.0.0.7 | x"},
      {"node7:3: x", "number=3 host=node7 | x"},
      {"node7:99:101 [3] NCCL WARN x", "pid=99 host=node7 | NCCL WARN x"},
      {"[pod/train-worker-3/pytorch] x", "pod=train-worker-3 | x"},
      {"train-worker-3  | x", "pod=train-worker-3 | x"},
      {"Apr 19 10:42:28 node7 train[123]: x", "host=node7 | x"},
      {"2026-09-02T15:29:45.3372976Z x", "| x"},
      {"2026-09-02 15:29:45,337 [rank3]: x", "rank=3 | x"},
      {"2026-09-02 15:29:45,337 [INFO] x", "| 2026-09-02 15:29:45,337 [INFO] x"},
      {"gpu07:3: x", "number=3 host=gpu07 | x"},
      {"localhost:3: x", "number=3 host=localhost | x"},
      // What stands before a prefix is skipped.
      {"\xef\xbb\xbf[rank3]: x", "rank=3 | x"},
      {"Mon Nov 23 15:00:00 2026[1,3]<stdout>:x", "task=3 | x"},
      // Ray names rank, pid and address.
      {"(Policy[rank=9] pid=3098846, ip=10.65.5.217) x", "rank=9 pid=3098846 host=10.65.5.217 | x"},
      {"\x1b[36m(Worker pid=12)\x1b[0m x", "pid=12 | x"},
      {"[36m(Worker pid=12)[0m x", "pid=12 | x"},
      {"(pid=12, ip=10.0.0.2) x", "pid=12 host=10.0.0.2 | x"},
      {"(W pid=1) hello [repeated 15x across cluster]",
       "pid=1 | hello [repeated 15x across cluster]"},
      // Several are nested.
      {"node7: 12: [default3]:[rank99]: Traceback",
       "rank=99 local=3 task=12 host=node7 | Traceback"},
      {"[default3]:  File \"a.py\", line 1", "local=3 |  File \"a.py\", line 1"},
      // A progress bar is no part of the line.
      {"1021/100000 [45:39<51:20:53,  1.87s/it][rank2]:[E723 x", "rank=2 | [E723 x"},
      {"  5%|#  | 5/99 [00:01<00:20,  4.5it/s, loss=0.3] [rank2]: x", "|  [rank2]: x"},
  };
  for (const auto& row : rows) EXPECT_EQ(shown(row.line), row.shown) << row.line;
  for (const std::string_view other : {"[n:rank12]x", "[n:rank] x", "[:rank1] x", "[n:rank1x] x"}) {
    EXPECT_EQ(find_prefix(other).rank, -1) << other;
  }
}

TEST(Prefixes, NamesOfHostsAreToldFromWordsWithNumbers) {
  for (const std::string name : {"gpu07", "gpu-node-12", "h100-042", "test-gpu3", "int-gpu01",
                                 "DGX-07", "node_7", "NODE-7", "rack1.node7", "ip-10-0-0-7"}) {
    EXPECT_EQ(shown(name + ": x"), "host=" + name + " | x");
  }
  for (const std::string_view line :
       {"gpu0: 45C", "step12: x", "Epoch_3: x", "epoch-3: x", "conv1: 0.3", "attn2: nan",
        "model.layers.0.mlp: nan", "0.5: x", "python3.11: x", "layer1.py:12: UserWarning: x",
        "step-time | 0.3", "10:42:28 [0] INFO step", "2026-09-02T15:29:45 [3] INFO x"}) {
    SCOPED_TRACE(std::string(line));
    EXPECT_TRUE(find_prefix(line).empty());
  }
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
