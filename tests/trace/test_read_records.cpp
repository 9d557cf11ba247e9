// Marks and collectives: only committed ones, in order, none from an earlier round of the ring.
#include <gtest/gtest.h>

#include "../words.hpp"
#include "record_builder.hpp"
#include "trace/read/records.hpp"

namespace oddrank::trace {
namespace {

TEST(ReadMarks, come_in_the_order_of_their_claims_with_their_texts) {
  FullRecord record;
  const Records<Mark> marks = read_marks(record.open());
  EXPECT_EQ(words(marks.claimed, marks.unfinished), "2 0");
  EXPECT_EQ(each(marks.list, &Mark::kind, &Mark::value, &Mark::text, &Mark::tid, &Mark::tsc),
            words(MarkKind::kStep, 6, "", 77, 1000) + ", " +
                words(MarkKind::kSectionBegin, 1, "forward", 77, 1001));
  record.mark(MarkKind::kMark, 0, std::string(32, 'x')).who = 0xFFFF'0002;  // longer than its field
  EXPECT_EQ(read_marks(record.open()).list.at(2).text, std::string(32, 'x'));
}

TEST(ReadMarks, a_ring_that_was_lapped_gives_the_last_lap) {
  RecordBuilder record;
  for (std::uint64_t i = 0; i < 21; ++i) record.mark(MarkKind::kMark, i, "");
  const Records<Mark> marks = read_marks(record.open());
  EXPECT_EQ(each(marks.list, &Mark::claim), "13, 14, 15, 16, 17, 18, 19, 20");
  EXPECT_EQ(each(marks.list, &Mark::value), "13, 14, 15, 16, 17, 18, 19, 20");
  // Another slot's claim of the same lap: no writer wrote that here.
  record.at<MarkSlot>(record.header().marks.offset)[5].commit = 15;
  EXPECT_EQ(each(read_marks(record.open()).list, &Mark::claim), "14, 15, 16, 17, 18, 19, 20");
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
    FullRecord record;
    record.at<MarkSlot>(record.header().marks.offset)[0].commit = commit;
    EXPECT_EQ(read_marks(record.open()).list.size(), 1U) << commit;
  }
  FullRecord record;
  record.header().marks_claimed = ~std::uint64_t{0};
  EXPECT_TRUE(read_marks(record.open()).list.empty());
}

TEST(ReadCollectives, begin_end_and_the_open_one_have_one_number) {
  FullRecord record;
  record.open_collective(0, 9);
  const RecordFile file = record.open();
  const Records<CollectiveRecord> all = read_collectives(file);
  using One = CollectiveRecord;
  EXPECT_EQ(
      each(all.list, &One::phase, &One::number),
      words(Phase::kBegin, 1) + ", " + words(Phase::kEnd, 1) + ", " + words(Phase::kBegin, 2));
  const One& last = all.list.back();
  EXPECT_EQ(words(last.sequence, last.bytes, last.group, last.operation, last.type, last.tid,
                  last.partner, last.role),
            words(20, 1U << 20, 1, 2, 6, 77, 1, Role::kRoot));
  EXPECT_EQ(each(read_open_collectives(file), &One::number), "2, 9");
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
  using State = Collective::State;
  EXPECT_EQ(each(all, &Collective::number, &Collective::state),
            words(1, State::kOpen) + ", " + words(3, State::kEnded) + ", " +
                words(4, State::kEnded) + ", " + words(5, State::kIssued) + ", " +
                words(6, State::kOpen));
  EXPECT_EQ(each(all, &Collective::known_sequence, &Collective::operation, &Collective::begin,
                 &Collective::end),
            "10 2 5001 -, 30 2 - 5003, 40 2 5004 5004, 50 2 5005 -, 60 2 5006 -");
}

TEST(ReadCollectives, a_record_without_room_for_them_has_none) {
  RecordBuilder record({.marks = 0, .collectives = 0, .open = 0, .groups = 0});
  record.header().marks_claimed = 5;
  EXPECT_TRUE(read_marks(record.open()).list.empty());
  EXPECT_TRUE(read_collectives(record.open()).list.empty());
  EXPECT_TRUE(read_open_collectives(record.open()).empty());
  EXPECT_TRUE(read_progress(record.open()).empty());
}

}  // namespace
}  // namespace oddrank::trace
