// Marks and collectives: only committed ones, in order, none from an earlier round of the ring.
#include <gtest/gtest.h>

#include <thread>

#include "record_builder.hpp"
#include "trace/read/records.hpp"

namespace oddrank::trace {
namespace {

TEST(ReadMarks, come_in_the_order_of_their_claims_with_their_texts) {
  RecordBuilder record;
  fill_record(record);
  const Records<Mark> marks = read_marks(record.open());
  EXPECT_EQ(marks.claimed, 2U);
  EXPECT_EQ(marks.unfinished, 0U);
  ASSERT_EQ(marks.list.size(), 2U);
  EXPECT_EQ(marks.list[0].kind, MarkKind::kStep);
  EXPECT_EQ(marks.list[0].value, 6U);
  EXPECT_EQ(marks.list[0].text, "");
  EXPECT_EQ(marks.list[0].tid, 77U);
  EXPECT_EQ(marks.list[1].kind, MarkKind::kSectionBegin);
  EXPECT_EQ(marks.list[1].text, "forward");
  EXPECT_EQ(marks.list[1].tsc, 1001U);
}

TEST(ReadMarks, a_ring_that_was_lapped_gives_the_last_lap) {
  RecordBuilder record;
  for (std::uint64_t i = 0; i < 21; ++i) record.mark(MarkKind::kMark, i, "");
  const Records<Mark> marks = read_marks(record.open());
  ASSERT_EQ(marks.list.size(), 8U);
  for (std::uint64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(marks.list[i].claim, 13 + i);
    EXPECT_EQ(marks.list[i].value, 13 + i);
  }
}

TEST(ReadMarks, one_that_is_claimed_and_not_committed_is_not_there) {
  RecordBuilder record;
  for (std::uint64_t i = 0; i < 10; ++i) record.mark(MarkKind::kMark, i, "");
  // The writer died after its claim: the slot still has number 2 and its commit word, but may be
  // half overwritten.
  ++record.header().marks_claimed;
  Records<Mark> marks = read_marks(record.open());
  ASSERT_EQ(marks.list.size(), 7U);
  EXPECT_EQ(marks.list.front().claim, 3U);
  EXPECT_EQ(marks.unfinished, 1U);
  record.at<MarkSlot>(record.header().marks.offset)[5].commit = 0;
  marks = read_marks(record.open());
  EXPECT_EQ(marks.list.size(), 6U);
  EXPECT_EQ(marks.unfinished, 2U);
}

TEST(ReadMarks, commit_words_that_nobody_wrote_are_not_believed) {
  for (const std::uint64_t commit : {3ULL, 5ULL, 12ULL, 1ULL << 63, ~0ULL}) {
    RecordBuilder record;
    fill_record(record);
    record.at<MarkSlot>(record.header().marks.offset)[0].commit = commit;
    EXPECT_EQ(read_marks(record.open()).list.size(), 1U) << commit;
  }
  RecordBuilder record;
  fill_record(record);
  record.header().marks_claimed = ~std::uint64_t{0};
  EXPECT_TRUE(read_marks(record.open()).list.empty());
}

TEST(ReadMarks, texts_are_cut_at_their_field) {
  RecordBuilder record;
  record.mark(MarkKind::kMark, 0, std::string(32, 'x')).who = 0xFFFF'0002;
  const Records<Mark> marks = read_marks(record.open());
  EXPECT_EQ(marks.list.at(0).text, std::string(32, 'x'));
}

TEST(ReadMarks, only_whole_ones_are_seen_while_threads_write) {
  RecordBuilder record;
  std::jthread writer([&](const std::stop_token& stop) {
    for (std::uint64_t i = 0; !stop.stop_requested(); ++i) {
      record.mark(MarkKind::kMark, i, std::to_string(i));
      if (i % 16 == 0) std::this_thread::yield();
    }
  });
  const RecordFile file = record.open();
  for (int i = 0; i < 5000; ++i) {
    for (const Mark& mark : read_marks(file).list) {
      ASSERT_EQ(mark.value, mark.claim);
      ASSERT_EQ(mark.tsc, 1000 + mark.claim);
      ASSERT_EQ(mark.text, std::to_string(mark.claim));
    }
  }
}

TEST(ReadCollectives, begin_end_and_the_open_one_have_one_number) {
  RecordBuilder record;
  fill_record(record);
  record.open_collective(0, 9);
  const RecordFile file = record.open();
  const Records<CollectiveRecord> all = read_collectives(file);
  ASSERT_EQ(all.list.size(), 3U);
  EXPECT_EQ(all.list[0].phase, Phase::kBegin);
  EXPECT_EQ(all.list[1].phase, Phase::kEnd);
  EXPECT_EQ(all.list[0].number, all.list[1].number);
  EXPECT_EQ(all.list[2].sequence, 20U);
  EXPECT_EQ(all.list[2].bytes, 1U << 20);
  EXPECT_EQ(all.list[2].group, 1U);
  EXPECT_EQ(all.list[2].operation, 2U);
  EXPECT_EQ(all.list[2].data_type, 6U);
  EXPECT_EQ(all.list[2].tid, 77U);
  EXPECT_EQ(all.list[2].partner, 1U);
  EXPECT_EQ(all.list[2].role, Role::kRoot);
  const std::vector<CollectiveRecord> open = read_open_collectives(file);
  ASSERT_EQ(open.size(), 2U);
  EXPECT_EQ(open[0].number, 2U);
  EXPECT_EQ(open[1].number, 9U);
  record.at<CollectiveSlot>(record.header().open.offset)[1].commit = 0;
  EXPECT_EQ(read_open_collectives(file).size(), 1U);
  record.at<CollectiveSlot>(record.header().open.offset)[0].number = 10;
  EXPECT_TRUE(read_open_collectives(file).empty()) << "claimed by the next and not filled in";
}

TEST(ReadCollectives, records_of_one_number_are_joined_whichever_are_missing) {
  RecordBuilder record;
  record.collective(Phase::kEnd, 3);  // its begin was overwritten
  record.collective(Phase::kBegin, 4).sequence = ~std::uint64_t{0};
  record.collective(Phase::kEnd, 4);
  record.collective(Phase::kBegin, 5).sequence = ~std::uint64_t{0};
  record.collective(Phase::kIssued, 5);
  record.collective(Phase::kBegin, 6).sequence = ~std::uint64_t{0};
  record.open_collective(0, 1);  // has hung for long
  record.open_collective(1, 6);
  record.open_collective(2, 4);  // ended after the table was copied
  const std::vector<Collective> all = read_joined_collectives(record.open());
  ASSERT_EQ(all.size(), 5U);
  using State = Collective::State;
  const State states[] = {State::kOpen, State::kEnded, State::kEnded, State::kIssued, State::kOpen};
  const std::uint64_t numbers[] = {1, 3, 4, 5, 6};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(all[i].number, numbers[i]);
    EXPECT_EQ(all[i].state, states[i]) << numbers[i];
    EXPECT_EQ(all[i].sequence, numbers[i] * 10);
    EXPECT_EQ(all[i].operation, 2U);
  }
  EXPECT_EQ(all[1].begin, std::nullopt);
  EXPECT_EQ(all[2].begin, 5004U);
  EXPECT_EQ(all[2].end, 5004U);
  EXPECT_EQ(all[4].end, std::nullopt);
}

TEST(ReadCollectives, a_record_without_room_for_them_has_none) {
  RecordSizes sizes;
  sizes.marks = sizes.collectives = sizes.open = sizes.groups = 0;
  RecordBuilder record(sizes);
  record.header().marks_claimed = 5;
  EXPECT_TRUE(read_marks(record.open()).list.empty());
  EXPECT_TRUE(read_collectives(record.open()).list.empty());
  EXPECT_TRUE(read_open_collectives(record.open()).empty());
  EXPECT_TRUE(read_progress(record.open()).empty());
}

}  // namespace
}  // namespace oddrank::trace
