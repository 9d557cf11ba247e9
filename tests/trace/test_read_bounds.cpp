// What a file may claim and what that costs its reader are two things.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "record_builder.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/stats.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {
namespace {

// What a hostile file of 1 GiB would do with its 65,536 slots: 10^12 events to read.
TEST(ReadBounds, a_ring_that_many_slots_claim_is_read_for_those_that_it_has_room_for) {
  RecordSizes sizes;
  sizes.threads = 64;
  RecordBuilder record(sizes);
  fill_record(record);
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
  EXPECT_EQ(read_stats(record.open(), 3).window, 4U * 255U);
}

// Each frame that is shown repeats it.
TEST(ReadBounds, a_name_is_no_longer_than_a_writer_would_make_it) {
  RecordSizes sizes;
  sizes.dictionary = 1 << 20;
  RecordBuilder record(sizes);
  record.entry(EntryKind::kText, 1, std::string(300'000, 'f'));
  record.code(1, std::string(300'000, 'n'), 1, 1, "\x80");
  record.entry(EntryKind::kGroup, 1, std::string(100'000, 'g'));
  const Dictionary dictionary(record.open());
  EXPECT_EQ(dictionary.broken(), "");
  EXPECT_EQ(dictionary.code(1)->file, std::string(4096, 'f'));
  EXPECT_EQ(dictionary.code(1)->qualified_name, std::string(4096, 'n'));
  EXPECT_EQ(dictionary.group(1), std::string(4096, 'g'));
}

}  // namespace
}  // namespace oddrank::trace
