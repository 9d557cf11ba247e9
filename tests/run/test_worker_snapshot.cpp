// Snapshots: what comes out is what went in, and nothing of what strangers send is trusted.
#include <gtest/gtest.h>

#include <random>

#include "../words.hpp"
#include "control/messages.hpp"
#include "run/worker_snapshot.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::run {
namespace {

std::string record_of(std::size_t words, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes;
  while (bytes.size() < words * 8) {
    const std::size_t zeros = random() % 4 == 0 ? random() % 9000 : random() % 8;
    bytes.append(zeros, '\0').push_back(static_cast<char>(random()));
  }
  bytes.resize(words * 8);
  return bytes;
}

WorkerSnapshot some_snapshot() {
  WorkerSnapshot snapshot;
  snapshot.realtime_ns = 1'700'000'000'000'000'000;
  snapshot.letter = "S";
  snapshot.start_time = 4711;
  snapshot.oom_kills = 2;
  snapshot.cpu_ns = 10;
  snapshot.io_bytes = 1ULL << 60;
  snapshot.threads = {{77, "S", "futex_wait_queue", 5}, {78, "R", "", 6}};
  snapshot.record = record_of(2000, 1);
  snapshot.workers = {record_of(300, 2), ""};
  return snapshot;
}

TEST(WorkerSnapshots, come_back_whole) {
  const auto read = control::unpack<WorkerSnapshot>(control::pack(some_snapshot()));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(words(read->letter, read->wait_status, read->io_bytes), "S -1 1152921504606846976");
  using Thread = WorkerSnapshot::Thread;
  EXPECT_EQ(each(read->threads, &Thread::tid, &Thread::wchan, &Thread::cpu_ns),
            "77 futex_wait_queue 5, 78 '' 6");
  EXPECT_EQ(read->record, some_snapshot().record);
  EXPECT_EQ(read->workers, some_snapshot().workers);
}

TEST(WorkerSnapshots, with_too_large_or_too_many_records_are_refused) {
  const auto is_read = [](std::size_t bytes, std::size_t workers) {
    WorkerSnapshot snapshot = some_snapshot();
    snapshot.record.assign(bytes, 'x');
    snapshot.workers.assign(workers, "");
    return control::unpack<WorkerSnapshot>(control::pack(snapshot)).has_value();
  };
  EXPECT_TRUE(is_read(trace::kLargestSlim, kMostWorkers));
  EXPECT_FALSE(is_read(trace::kLargestSlim + 1, 0));
  EXPECT_FALSE(is_read(0, kMostWorkers + 1));
}

TEST(WorkerSnapshots, that_are_cut_or_changed_never_give_more_than_a_record_may_have) {
  const std::string good = control::pack(some_snapshot());
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good.substr(0, random() % 8 == 0 ? random() % good.size() : good.size());
    for (unsigned change = 0; change < random() % 4 && !bytes.empty(); ++change) {
      bytes[random() % std::min<std::size_t>(bytes.size(), 300)] = static_cast<char>(random());
    }
    const auto read = control::unpack<WorkerSnapshot>(bytes);
    if (read) {
      EXPECT_LE(read->record.size(), trace::kLargestSlim);
    }
  }
}

}  // namespace
}  // namespace oddrank::run
