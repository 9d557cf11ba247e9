// Hostile records, mutated at random and to extremes, are read or refused at bounded cost.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <random>
#include <string>

#include "../words.hpp"
#include "read_everything.hpp"
#include "record_builder.hpp"
#include "record_mutation.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/snapshot.hpp"
#include "trace/read/threads.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t /*most*/) {
  static std::minstd_rand random;
  for (auto i = random() % 8; i > 0; --i)
    data[random() % size] = static_cast<std::uint8_t>(random());
  return size;
}

namespace oddrank::trace {
namespace {

std::string good_record() {
  FullRecord record;
  return std::string(record.bytes());
}

// Returns 0 if it was read, 1 if it was refused.
int read_bytes(const std::string& bytes) {
  Fd fd(::memfd_create("oddrank-mutated", MFD_CLOEXEC));
  const auto size = static_cast<ssize_t>(bytes.size());
  if (!fd || ::write(fd.get(), bytes.data(), bytes.size()) != size) throw_errno("memfd");
  try {
    RecordFile file(std::move(fd), "of the test");
    volatile std::size_t used = read_parts(file);
    used = export_text(std::move(file), true).size();
    static_cast<void>(used);
  } catch (const Error&) {
    return 1;
  }
  return 0;
}

TEST(ReadMutations, every_word_of_the_header_and_of_the_slots_at_its_extremes) {
  const std::string good = good_record();
  ASSERT_EQ(read_bytes(good), 0);
  int refused = 0;
  int cases = 0;
  for (std::size_t at = 0; at < good.size(); at += 4) {
    const bool is_header = at < sizeof(Header);
    // All of the header, a sample of the rest, which is mostly zeros or text.
    if (!is_header && at % 40 != 0) continue;
    for (const std::uint64_t extreme : kExtremes) {
      for (const std::size_t size : {std::size_t{4}, std::size_t{8}}) {
        if (at + size > good.size() || (!is_header && size == 4)) continue;
        std::string changed = good;
        std::memcpy(&changed[at], &extreme, size);
        refused += read_bytes(changed);
        ++cases;
      }
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, cases / 2);
}

TEST(ReadMutations, five_thousand_at_random) {
  int read = 0;
  for (unsigned seed = 0; seed < 5'000; ++seed) {
    std::string changed = good_record();
    auto* bytes = reinterpret_cast<std::uint8_t*>(changed.data());
    changed.resize(mutate_record(bytes, changed.size(), changed.size(), seed));
    read += read_bytes(changed) == 0 ? 1 : 0;
  }
  EXPECT_GT(read, 2'000) << "too few got past the header to say anything";
}

// A hostile file of 1 GiB claims 65,536 slots that share a ring: 10^12 events to read.
TEST(ReadBounds, a_ring_that_many_slots_claim_is_read_for_those_that_it_has_room_for) {
  constexpr RecordSizes sizes{.threads = 64};
  FullRecord record(sizes);
  for (std::uint32_t i = 0; i < sizes.threads; ++i) {
    record.thread(i, "greedy", {});
    record.slot(i).ring_offset = record.header().rings.offset;
    record.slot(i).ring_events = 64 * sizes.ring_events / 4;
    record.slot(i).head = 1'000;
  }
  const Threads threads = read_threads(record.open());
  EXPECT_EQ(threads.list.size(), 64U);
  EXPECT_EQ(threads.broken, 60U);
  const auto reads = [](const Thread& thread) { return thread.capacity > 0; };
  EXPECT_EQ(std::ranges::count_if(threads.list, reads), 4);
  std::size_t window = 0;
  for (Thread thread : threads.list) window += read_events(record.open(), thread).list.size();
  EXPECT_EQ(window, 4U * 255U);
}

TEST(ReadBounds, frames_have_no_more_text_than_some_times_the_record) {
  constexpr RecordSizes sizes{.dictionary = 1 << 16, .threads = 64, .stack_room = 1000};
  RecordBuilder record(sizes);
  record.entry(EntryKind::kText, 1, std::string(5000, 'f'));
  record.code(1, std::string(5000, 'n'), 1, 1, "\x80");
  record.group(1, std::string(5000, 'g'), {});
  EXPECT_EQ(Dictionary(record.open()).group_name(1), std::string(4096, 'g'));
  const std::vector<Place> stack(sizes.stack_room, Place::of(1, kNoPosition, 0));
  for (std::uint32_t i = 0; i < sizes.threads; ++i) record.thread(i, "deep", stack);
  const Snapshot now = read_snapshot(record.open());
  std::size_t text = 0;
  for (const ThreadNow& thread : now.threads) {
    ASSERT_EQ(thread.stack.size(), sizes.stack_room);
    for (const Frame& frame : thread.stack) text += frame.function.size() + frame.file.size();
  }
  const Frame& first = now.threads.front().stack.front();
  EXPECT_EQ(words(first.function, first.file),
            std::string(4096, 'n') + " " + std::string(4096, 'f'));
  EXPECT_EQ(now.threads.back().stack.back().function, "code 1");
  EXPECT_LT(text, (std::size_t{17} << 20) + 8 * record.size());
}

std::int64_t most_memory() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss * 1024;
}

TEST(ReadBounds, regions_of_holes_take_no_memory) {
  RecordSizes sizes;
  sizes.marks = sizes.collectives = sizes.open = sizes.groups = 1 << 21;
  RecordBuilder record(sizes);
  record.header().marks_claimed = record.header().collectives_claimed = ~std::uint64_t{0} / 2;
  [[maybe_unused]] const std::int64_t before = most_memory();
  const RecordFile file = record.open();
  EXPECT_TRUE(read_marks(file).list.empty());
  EXPECT_TRUE(read_joined_collectives(file).empty());
  EXPECT_TRUE(read_progress(file).empty());
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
  EXPECT_LT(most_memory() - before, std::int64_t{sizes.marks} * 32) << "less than half a region";
#endif
}

}  // namespace
}  // namespace oddrank::trace
