// Many threads write one record while others read it: readers show only what was really written.
//
// One reader uses the file, one the recorder's own mapping. There the thread sanitizer sees every
// access: no reader may meet a plain write.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "recording.hpp"
#include "trace/format/format.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/records.hpp"
#include "trace/read/threads.hpp"
#include "trace/write/recorder.hpp"

#if defined(__SANITIZE_THREAD__)
#define ODDRANK_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ODDRANK_THREAD_SANITIZER 1
#endif
#endif

namespace oddrank::trace::record_threads_test {
namespace {

#ifdef ODDRANK_THREAD_SANITIZER
constexpr std::uint64_t kTurns = 10'000;
#else
constexpr std::uint64_t kTurns = 300'000;
#endif

// The smallest record, so that its rings are lapped all the time.
struct Record : Recording {
  Record() : Recording(kFewestBytes) {}

  // Runs all writers at once, and two readers until the last writer has done.
  void run(const std::vector<std::function<void()>>& writers,
           const std::function<void(const RecordFile&)>& look) {
    std::atomic<std::size_t> busy = writers.size();
    std::vector<std::jthread> threads;
    for (const bool in_memory : {false, true}) {
      threads.emplace_back([&, in_memory] {
        const RecordFile record = in_memory ? open_memory() : open();
        bool last = false;
        while (!last && !::testing::Test::HasFailure()) {
          last = busy == 0;
          look(record);
        }
      });
    }
    for (const auto& writer : writers) {
      threads.emplace_back([&] {
        writer();
        --busy;
      });
    }
  }
};

std::string name_of_thread(std::uint32_t tid) { return "thread number " + std::to_string(tid); }

// Threads that begin, call, return and end. Each event has its writer and its number.
void be_threads(Recorder& recorder, std::atomic<std::uint32_t>& next_tid) {
  for (std::uint64_t turn = 0; turn < kTurns / 500; ++turn) {
    const std::uint32_t tid = ++next_tid;
    ThreadRecorder* pen = recorder.add_thread(tid, tid, name_of_thread(tid));
    ASSERT_NE(pen, nullptr);
    for (std::uint32_t i = 0; i < 1'000; ++i) {
      const Place place = Place::of(tid, i, static_cast<std::uint8_t>(Kind::kLine));
      if (i % 16 < 8) {
        pen->enter(place);
      } else {
        pen->leave();
      }
      pen->append(place);
    }
    recorder.name_thread(*pen, name_of_thread(tid));
    recorder.end_thread(*pen);
  }
}

TEST(RecordOfManyThreads, EachSlotShowsOneThreadAndItsOwnEvents) {
  Record record;
  std::atomic<std::uint32_t> next_tid = 0;
  std::atomic<std::uint64_t> seen = 0, whole = 0;
  const auto write = [&] { be_threads(*record.recorder, next_tid); };
  record.run({write, write, write}, [&](const RecordFile& file) {
    const Threads threads = read_threads(file, 2);
    EXPECT_EQ(threads.broken, 0U);
    for (const Thread& thread : threads.list) {
      EXPECT_EQ(thread.python_id, thread.tid);
      EXPECT_EQ(thread.name, name_of_thread(thread.tid));
      if (!thread.torn) {
        // Frames of one moment were entered one after the other, the first of eight outermost.
        for (std::size_t i = 0; i < thread.stack.size(); ++i) {
          EXPECT_EQ(thread.stack[i].code(), thread.tid);
          EXPECT_EQ(thread.stack[i].position() % 16, i);
          EXPECT_EQ(thread.stack[i].position(), thread.stack[0].position() + i);
        }
        EXPECT_EQ(thread.stack.size(), thread.depth);
        whole += thread.stack.size() > 1 ? 1 : 0;
      }
      const Events events = read_events(file, thread.slot, 100);
      if (events.generation != thread.generation) continue;
      for (std::size_t i = 0; i < events.list.size(); ++i) {
        EXPECT_EQ(events.list[i].place.code(), thread.tid);
        EXPECT_EQ(events.list[i].place.position(), events.first + i);
      }
      seen += events.list.size();
    }
  });
  EXPECT_GT(whole, 0U);
  EXPECT_GT(seen, 0U);
}

TEST(RecordOfManyThreads, AMarkIsWholeHoweverOftenItsSlotIsLapped) {
  Record record;
  std::atomic<std::uint64_t> seen = 0;
  const auto write = [&](std::uint32_t tid) {
    return [&record, tid] {
      for (std::uint64_t i = 0; i < kTurns; ++i) {
        const std::uint64_t value = i * 1'000'003 + tid;
        record->marks().add(i % 2 == 0 ? MarkKind::kSectionBegin : MarkKind::kMark, value,
                            std::to_string(value), tid);
        if (i % 16 == 0) record->step(i * 1'000'003 + tid, tid);
      }
    };
  };
  record.run({write(1), write(2), write(3), write(4)}, [&](const RecordFile& file) {
    for (const Mark& mark : read_marks(file).list) {
      EXPECT_EQ(mark.value % 1'000'003, mark.tid);
      EXPECT_EQ(mark.text, mark.kind == MarkKind::kStep ? "" : std::to_string(mark.value));
      ++seen;
    }
    EXPECT_LE(file.header().step().value_or(0) % 1'000'003, 4U);
  });
  EXPECT_GT(seen, 0U);
  const Records<Mark> marks = read_marks(record.open());
  EXPECT_EQ(marks.claimed, 4 * (kTurns + kTurns / 16));
  EXPECT_EQ(marks.list.size(), record->header().marks.count);
}

TEST(RecordOfManyThreads, ACollectiveIsWholeInTheRingAndAmongTheOpenOnes) {
  Record record;
  std::atomic<std::uint64_t> seen = 0;
  const auto write = [&](std::uint32_t tid) {
    return [&record, tid] {
      CollectiveRing& ring = record->collectives();
      for (std::uint32_t turn = 1; turn <= kTurns; ++turn) {
        const std::uint32_t i = turn & 0x3FFF;  // ids are of 16 bits
        const std::uint64_t number = ring.begin(
            {.group = i, .operation = i + tid, .bytes = std::uint64_t{i} * tid, .tid = tid});
        ring.numbered(number, i);
        ring.close(number, i % 2 == 0 ? Phase::kEnd : Phase::kIssued);
      }
    };
  };
  record.run({write(1), write(2), write(3), write(4)}, [&](const RecordFile& file) {
    std::vector<CollectiveRecord> all = read_collectives(file).list;
    const std::vector<CollectiveRecord> open = read_open_collectives(file);
    EXPECT_LE(open.size(), 4U + 1U);  // one may have ended and another begun between two slots
    all.insert(all.end(), open.begin(), open.end());
    for (const CollectiveRecord& one : all) {
      EXPECT_EQ(one.operation, one.group + one.tid);
      EXPECT_EQ(one.bytes, std::uint64_t{one.group} * one.tid);
      const bool is_numbered = one.sequence != kNoSequence;
      EXPECT_EQ(one.sequence, is_numbered ? one.group : kNoSequence);
      ++seen;
    }
    static_cast<void>(read_joined_collectives(file));
  });
  EXPECT_GT(seen, 0U);
  EXPECT_EQ(record->header().lost_collectives, 0U);
}

TEST(RecordOfManyThreads, NamesClocksAndTheHookAreWhole) {
  Record record;
  const auto add_names = [&] {
    DictionaryWriter& dictionary = record->dictionary();
    for (std::uint64_t i = 0; i < kTurns / 1'000; ++i) {
      const std::string name = "function " + std::to_string(i);
      dictionary.add_code({.name = name, .file = name, .linetable = name, .first_line = 1});
      dictionary.group({.name = name});
    }
  };
  const auto picture = [&] {
    for (std::uint64_t i = 0; i < kTurns; ++i) record->refresh_clock();
  };
  const auto hook = [&] {
    for (std::uint64_t i = 0; i < kTurns; ++i) {
      record->set_hook_state(HookState::kDisplaced, i % 2 == 0 ? "pdb" : "");
    }
  };
  record.run({add_names, add_names, picture, picture, hook}, [&](const RecordFile& file) {
    const Dictionary dictionary(file);
    EXPECT_EQ(dictionary.broken(), "");
    for (const Code& code : dictionary.codes()) {
      EXPECT_EQ(code.file, code.qualified_name);
      EXPECT_EQ(code.linetable.size(), code.qualified_name.size());
    }
    std::uint64_t latest = 0;
    for (const ClockPicture& clock : file.clocks()) {
      EXPECT_GT(clock.realtime_ns, clock.monotonic_ns);
      latest = std::max(latest, clock.tsc);
    }
    EXPECT_LE(latest, read_tsc());
    const std::string displaced_by(text_of(file.header()->displaced_by));
    EXPECT_TRUE(displaced_by.empty() || displaced_by == "pdb") << displaced_by;
  });
}

}  // namespace
}  // namespace oddrank::trace::record_threads_test
